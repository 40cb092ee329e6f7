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
    ngx_http_get_flushed_variable, ngx_http_get_variable, ngx_http_get_variable_index,
    ngx_http_variable_t, ngx_int_t, ngx_str_t, ngx_uint_t,
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
    /// It is looked up each time.
    flag is_not_cacheable = no_cacheable;
    /// There is none.
    set_flag set_missing = set_not_found;
    /// It has been looked up.
    set_flag set_valid = set_valid;
    /// It is looked up each time.
    set_flag set_not_cacheable = set_no_cacheable;
}}

impl Value {
    /// It was looked up, whether there is one or not.
    #[inline]
    fn is_known(&self) -> bool {
        self.is_valid() || self.is_missing()
    }

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
        let value = self.value_of(index)?;
        if value.is_known() { value.text() } else { self.flushed(index)?.text() }
    }

    /// nginx has looked the variable up before, or a configuration has `set` it.
    #[inline]
    pub fn knows_variable(&self, index: VariableIndex) -> bool {
        self.value_of(index).is_some_and(Value::is_known)
    }

    /// As [`Request::indexed_variable`], looked up again if it may have changed; `None` if there is no value.
    ///
    /// The request keeps the value that it had: nginx may have measured that one for a text that it is about to write.
    #[inline]
    pub fn current_variable(&self, index: VariableIndex) -> Option<&[u8]> {
        self.look_up(index, None)
    }

    /// As [`Request::current_variable`], of a variable that lasts: where nobody else has taken it over and its value is not
    /// known yet, `V` is asked for it without a detour over nginx.
    #[inline]
    pub fn lasting_variable<V: Variable>(&self, index: VariableIndex) -> Option<&[u8]> {
        self.look_up(index, Some(get_variable::<V>))
    }

    #[inline]
    fn look_up(&self, index: VariableIndex, own: Option<OwnHandler>) -> Option<&[u8]> {
        let value = self.value_of(index)?;
        if value.is_known() && !value.is_not_cacheable() {
            return value.text();
        }
        self.look_up_anew(index, value, own)
    }

    #[inline(never)]
    fn look_up_anew(
        &self,
        index: VariableIndex,
        value: &Value,
        own: Option<OwnHandler>,
    ) -> Option<&[u8]> {
        if let Some(own) = own.filter(|_| !value.is_known()) {
            let variables = self.main_conf::<HttpCore>().variables.elts;
            // SAFETY: the configuration has as many variables as the request has values, and there is a value.
            let variable = unsafe { *variables.cast::<ngx_http_variable_t>().add(index.0) };
            let is_own = |it| std::ptr::fn_addr_eq(it, two_and(own));
            if variable.get_handler.is_some_and(is_own) {
                own(self, value, variable.data);
                return self.value_of(index)?.text();
            }
        }
        let (before, was_known) = (value.peek(|raw| *raw), value.is_known());
        let text = self.flushed(index).and_then(Value::text);
        if was_known {
            value.poke(|raw| *raw = before);
        }
        text
    }

    /// As [`Request::current_variable`], and the request keeps it. `None` where it cannot be looked up;
    /// a missing one is empty.
    pub fn flushed_variable(&self, index: VariableIndex) -> Option<&[u8]> {
        self.value_of(index)?;
        self.flushed(index).map(|value| value.text().unwrap_or_default())
    }

    /// What the request knows of a variable; `None`: an index of another configuration, beyond this one's variables.
    #[inline]
    fn value_of(&self, index: VariableIndex) -> Option<&Value> {
        if index.0 >= self.main_conf::<HttpCore>().variables.nelts {
            return None;
        }
        // SAFETY: a live request, which has a value for each variable of its configuration, as long as it.
        Some(unsafe { Value::from_ptr((*self.as_ptr()).variables.add(index.0)) })
    }

    /// The value of a variable that there is, looked up if it is not known or may have changed.
    fn flushed(&self, index: VariableIndex) -> Option<&Value> {
        // SAFETY: a live request; the index is one of its configuration, as `value_of` has said.
        unsafe { Value::from_nullable(ngx_http_get_flushed_variable(self.as_ptr(), index.0)) }
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
        // One of nginx's own that may be `set` has a callback for that, which takes the place for its own.
        variable.set_handler = None;
        variable.data = place;
        Some(())
    }
}

/// Looks variables up.
pub trait Variable {
    /// The value for a request. What is borrowed lies in the request's memory or the program.
    fn get<'r>(request: &'r Request, place: usize) -> Lookup<'r>;
}

/// [`get_variable`] of some type.
type OwnHandler = extern "C" fn(&Request, &Value, usize) -> ngx_int_t;

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
