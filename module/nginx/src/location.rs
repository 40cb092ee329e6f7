//! Locations that no nginx.conf has: nginx's own settings, some of them changed.

use crate::basic::handle::Handle;
use crate::conf::kept::{HttpCore, NamedModule};
use crate::conf::module::HttpModule;
use crate::conf::{Conf, CoreLocation, IN_HTTP};
use crate::cycle::Cycle;
use crate::request::Request;
use crate::stock::Fastcgi;
use crate::sys::{
    ngx_array_t, ngx_http_complex_value_t, ngx_http_core_loc_conf_t, ngx_http_err_page_t,
    ngx_http_update_location_config, ngx_int_t, ngx_str_t,
};
use std::any::Any;
use std::ffi::c_void;
use std::ptr::NonNull;

/// The settings of all modules for a location, which stay as long as the cycle that they are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings(NonNull<*mut c_void>);

impl Conf {
    /// Those of the location that is read.
    pub fn location_settings(&self) -> Option<Settings> {
        NonNull::new(self.http().loc_conf).map(Settings)
    }
}

/// The settings of a location with some of them changed. What is not is the location's own.
pub struct LocationCopy {
    /// One pointer a module: nginx's array.
    modules: Box<[*mut c_void]>,
    core: Box<ngx_http_core_loc_conf_t>,
    /// What `modules` leads to, and what that does.
    kept: Vec<Box<dyn Any>>,
}

/// A copy that is changed, while the cycle is there that its settings are of.
pub struct NewLocation<'c> {
    copy: LocationCopy,
    cycle: &'c Cycle,
}

impl<'c> NewLocation<'c> {
    /// A copy of a location's settings.
    ///
    /// # Safety
    /// They are of the cycle.
    pub unsafe fn of(base: Settings, cycle: &'c Cycle) -> Self {
        let count = cycle.http_module_count();
        // SAFETY: alive and of the cycle, as the caller promises; nginx's array has a place for each of its http modules.
        let modules = unsafe { std::slice::from_raw_parts(base.0.as_ptr(), count) };
        let mut modules: Box<[*mut c_void]> = modules.into();
        let place = modules.get_mut(HttpCore::index());
        let place = place.expect("the core module has its place in each location");
        // SAFETY: the core module's settings for this location; a struct of numbers and pointers.
        let mut core = Box::new(unsafe { place.cast::<ngx_http_core_loc_conf_t>().read() });
        *place = (&raw mut *core).cast();
        core.loc_conf = modules.as_mut_ptr();
        NewLocation { copy: LocationCopy { modules, core, kept: Vec::new() }, cycle }
    }

    /// It is changed no more.
    pub fn finish(self) -> LocationCopy {
        self.copy
    }

    /// What the core module does about requests.
    pub fn core(&mut self) -> &CoreLocation {
        // SAFETY: the copy's own, exclusively, during the borrow.
        unsafe { CoreLocation::from_ptr(&raw mut *self.copy.core) }
    }

    /// Changes a copy of what a module of nginx's own keeps; `None`: nginx was built without it.
    pub fn change<N: NamedModule>(&mut self, change: impl FnOnce(&N::Location)) -> Option<()> {
        let place = self.copy.modules.get_mut(self.cycle.module_index(N::NAME)?)?;
        // SAFETY: null, or what the module of that very name keeps, a struct of numbers and pointers; and a copy of it, which is
        // nobody else's.
        let mut copy = unsafe {
            let mut copy = Box::new(*place.cast::<<N::Location as Handle>::Raw>().as_ref()?);
            N::Location::nullable(&raw mut *copy).map(change);
            copy
        };
        *place = (&raw mut *copy).cast();
        self.copy.kept.push(copy);
        Some(())
    }

    /// `fastcgi_index`; `None`: nginx was built without FastCGI.
    pub fn set_fastcgi_index(&mut self, index: &[u8]) -> Option<()> {
        let index: Box<[u8]> = index.into();
        // nginx reads it, and never as a template.
        let text = ngx_str_t::of(&index);
        self.change::<Fastcgi>(|conf| conf.poke(|raw| raw.index = text))?;
        self.keep(index);
        Some(())
    }

    /// Keeps something that changed settings lead to.
    pub(crate) fn keep(&mut self, value: impl Any) {
        self.copy.kept.push(Box::new(value));
    }

    /// These statuses lead to a named location, which decides what becomes of them.
    pub fn set_error_pages(&mut self, statuses: &[u16], to: &[u8]) {
        let to: Box<[u8]> = to.into();
        let page = |status: &u16| ngx_http_err_page_t {
            status: *status as ngx_int_t,
            // nginx keeps the status it came from, for the location to look at.
            overwrite: -1,
            value: ngx_http_complex_value_t { value: ngx_str_t::of(&to), ..Default::default() },
            args: ngx_str_t::empty(),
        };
        let mut pages: Box<[_]> = statuses.iter().map(page).collect();
        let (nelts, size) = (pages.len(), size_of::<ngx_http_err_page_t>());
        let elts = pages.as_mut_ptr().cast();
        // An array of its own, that nobody adds to.
        let array = ngx_array_t { elts, nelts, size, nalloc: nelts, ..Default::default() };
        let mut array = Box::new(array);
        self.copy.core.error_pages = &raw mut *array;
        self.keep((array, pages, to));
    }
}

impl Request {
    /// The settings of all modules for the location of the request.
    #[inline]
    pub fn location_settings(&self) -> Settings {
        Settings(NonNull::new(self.peek(|raw| raw.loc_conf)).expect(IN_HTTP))
    }

    /// Goes on as if nginx had found the location of these settings, in a phase before its content.
    ///
    /// # Safety
    /// They are of the cycle that the request is of.
    pub unsafe fn enter_location(&self, settings: Settings) {
        self.enter(settings.0.as_ptr());
    }

    /// As [`Request::enter_location`], with changed settings.
    ///
    /// # Safety
    /// The copy is of the cycle that the request is of, and stays until the event loop's turn is over in which the request
    /// is freed: nginx looks at it after that.
    pub unsafe fn enter_copy(&self, copy: &LocationCopy) {
        self.enter(copy.modules.as_ptr().cast_mut());
    }

    /// Other settings in place of the location's; nothing is done about what the core module says.
    ///
    /// # Safety
    /// As for [`Request::enter_copy`].
    pub unsafe fn set_location_copy(&self, copy: &LocationCopy) {
        self.poke(|raw| raw.loc_conf = copy.modules.as_ptr().cast_mut());
    }

    /// Settings that stay as long as whoever calls this has been promised.
    fn enter(&self, settings: *mut *mut c_void) {
        self.poke(|raw| (raw.loc_conf, raw.content_handler) = (settings, None));
        // SAFETY: a live request, with settings of a location that stay as long as it: of its cycle, or of a copy.
        unsafe { ngx_http_update_location_config(self.as_ptr()) };
    }
}
