//! Variables: nginx's, and a module's own.

use super::Request;
use crate::basic::callback::two_and;
use crate::basic::guard::contain;
use crate::basic::handle::{fields, handle};
use crate::basic::text::{bytes, hash_key};
use crate::conf::Conf;
use crate::conf::kept::HttpCore;
use crate::sys;
use crate::sys::{
    NGX_HTTP_VAR_CHANGEABLE, NGX_HTTP_VAR_NOCACHEABLE, ngx_http_add_variable,
    ngx_http_get_flushed_variable, ngx_http_get_indexed_variable, ngx_http_get_variable,
    ngx_http_get_variable_index, ngx_int_t, ngx_str_t, ngx_uint_t,
};

handle! {
    /// The value of a variable for a request.
    Value of ngx_variable_value_t
}

fields! { Value {
    /// There is none.
    flag is_missing = not_found;
    /// It has been looked up.
    flag is_valid = valid;
    /// There is none.
    set_flag set_missing = set_not_found;
    /// It has been looked up.
    set_flag set_valid = set_valid;
    /// It is looked up each time.
    set_flag set_not_cacheable = set_no_cacheable;
}}

impl Value {
    /// The text, if there is a value.
    #[inline]
    pub fn text(&self) -> Option<&[u8]> {
        if self.is_missing() || !self.is_valid() {
            return None;
        }
        let text = self.peek(|raw| ngx_str_t { len: raw.len() as usize, data: raw.data });
        // SAFETY: a value that is there has a text, in the request's pool or the configuration, which stays.
        Some(unsafe { bytes(text) })
    }

    /// Writes a value.
    ///
    /// # Safety
    /// The text stays as long as the request that the value is for.
    pub unsafe fn set(&self, text: Option<&[u8]>) {
        self.set_valid(text.is_some());
        self.set_missing(text.is_none());
        self.set_not_cacheable(false);
        if let Some(text) = text {
            self.poke(|raw| {
                raw.set_len(text.len() as u32);
                raw.data = text.as_ptr().cast_mut();
            });
        }
    }
}

/// How a variable behaves.
#[derive(Clone, Copy, Debug, Default)]
pub struct VariableFlags {
    /// A configuration may `set` it too.
    pub is_changeable: bool,
    /// It is looked up once a request.
    pub is_lasting: bool,
}

impl VariableFlags {
    pub(crate) fn bits(self) -> ngx_uint_t {
        let changeable = if self.is_changeable { NGX_HTTP_VAR_CHANGEABLE } else { 0 };
        let lasting = if self.is_lasting { 0 } else { NGX_HTTP_VAR_NOCACHEABLE };
        (changeable | lasting) as ngx_uint_t
    }
}

impl Request {
    /// The value of a variable, by its lower-case name; `None` if there is none.
    pub fn variable(&self, name: &[u8]) -> Option<&[u8]> {
        let (key, mut name) = (hash_key(name), ngx_str_t::of(name));
        // SAFETY: nginx reads the name, and looks it up for a live request.
        let value = unsafe {
            Value::from_nullable(ngx_http_get_variable(self.as_ptr(), &raw mut name, key))
        };
        value?.text()
    }

    /// The value of a variable, by what [`crate::Conf::variable_index`] has answered for this configuration. It is the
    /// one that was looked up before, if it was.
    #[inline]
    pub fn indexed_variable(&self, index: VariableIndex) -> Option<&[u8]> {
        // SAFETY: a live request; the index came from nginx, and a request has a value for each.
        let value =
            unsafe { Value::from_nullable(ngx_http_get_indexed_variable(self.as_ptr(), index.0)) };
        value?.text()
    }

    /// As [`Request::indexed_variable`], looked up again if it may have changed; `None` if there is no value.
    ///
    /// The request keeps the value that it had: nginx may have measured that one for a text that it is about to write.
    pub fn current_variable(&self, index: VariableIndex) -> Option<&[u8]> {
        if !self.has_variable(index) {
            return None;
        }
        // SAFETY: a live request; the index came from nginx, and a request has a value for each, a struct of numbers and a
        // pointer. What is put back was there before.
        unsafe {
            let place = (*self.as_ptr()).variables.add(index.0);
            let before = *place;
            let value = ngx_http_get_flushed_variable(self.as_ptr(), index.0);
            let text = Value::from_nullable(value).and_then(Value::text);
            let was_known = before.valid() != 0 || before.not_found() != 0;
            if was_known && before.no_cacheable() != 0 {
                *place = before;
            }
            text
        }
    }

    /// An index of another configuration may be beyond this one's variables.
    #[inline]
    fn has_variable(&self, index: VariableIndex) -> bool {
        index.0 < self.main_conf::<HttpCore>().variables.nelts
    }

    /// As [`Request::current_variable`]. `None` where it cannot be looked up;
    /// a missing one is empty.
    pub fn flushed_variable(&self, index: VariableIndex) -> Option<&[u8]> {
        if !self.has_variable(index) {
            return None;
        }
        // SAFETY: a live request; the index came from nginx, and a request has a value for each.
        let value =
            unsafe { Value::from_nullable(ngx_http_get_flushed_variable(self.as_ptr(), index.0)) };
        value.map(|value| value.text().unwrap_or_default())
    }
}

/// The number of a variable in a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VariableIndex(pub(crate) ngx_uint_t);

/// Looks a module's variable up for a request.
pub type Lookup<'r> = Option<std::borrow::Cow<'r, [u8]>>;

impl Conf {
    /// The number of a variable, by its lower-case name; `None`, and a line in the log, if that is no name.
    pub fn variable_index(&self, name: &[u8]) -> Option<VariableIndex> {
        let _ = self.http();
        let mut name = ngx_str_t::of(self.pool().concat(&[name])?);
        // SAFETY: in `http`; the name lies in the cycle's pool.
        let index = unsafe { ngx_http_get_variable_index(self.as_ptr(), &raw mut name) };
        ngx_uint_t::try_from(index).ok().map(VariableIndex)
    }

    /// Adds a variable, which `V` looks up; `place` is told to it. `None` when memory is out.
    pub fn add_variable<V: Variable>(
        &mut self,
        name: &[u8],
        flags: VariableFlags,
        place: usize,
    ) -> Option<()> {
        let _ = self.http();
        let mut name = ngx_str_t::of(name);
        // SAFETY: in `http`, before it is read; nginx copies the name.
        let variable =
            unsafe { ngx_http_add_variable(self.as_ptr(), &raw mut name, flags.bits()).as_mut() }?;
        variable.get_handler = Some(two_and(get_variable::<V>));
        variable.data = place;
        Some(())
    }
}

/// Looks variables up.
pub trait Variable {
    /// The value for a request. What is borrowed lies in the request's memory or the program.
    fn get<'r>(request: &'r Request, place: usize) -> Lookup<'r>;
}

/// nginx's callback when somebody asks for a variable.
extern "C" fn get_variable<V: Variable>(
    request: &Request,
    value: &Value,
    place: usize,
) -> ngx_int_t {
    contain("variable", sys::NGX_ERROR as ngx_int_t, || {
        let text = match V::get(request, place) {
            Some(std::borrow::Cow::Borrowed(text)) => Some(text),
            Some(std::borrow::Cow::Owned(text)) => request.pool().concat(&[&text]),
            None => None,
        };
        // SAFETY: of the request, for any lifetime that the handle may have: its pool or buffers, or the program.
        unsafe { value.set(text) };
        sys::NGX_OK as ngx_int_t
    })
}
