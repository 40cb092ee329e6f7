//! An nginx module: `hello NAME;` in a location adds a header to its responses, and `$hello_agent` is what the client is.
use nginx::module::{
    Arguments, Context, Directive, HttpModule, Shared, http_context, http_module, names,
};
use nginx::sys::{ngx_http_module_t, ngx_module_t};
use nginx::{
    Argument, Code, Conf, Lookup, Next, Phase, PhaseHandler, Refused, Request, Variable,
    VariableFlags,
};
use std::ffi::c_char;

#[unsafe(no_mangle)]
static mut ngx_modules: [*const ngx_module_t; 2] = [&raw const MODULE, std::ptr::null()];
#[unsafe(no_mangle)]
static ngx_module_names: Shared<[*const c_char; 2]> = names([Some(c"ngx_http_hello_module"), None]);
#[unsafe(no_mangle)]
static ngx_module_order: Shared<[*const c_char; 1]> = names([None]);
static mut MODULE: ngx_module_t = http_module::<Hello>(&CONTEXT, DIRECTIVES);
static CONTEXT: Shared<ngx_http_module_t> = http_context::<Hello>();
const DIRECTIVES: &[Directive] = &[
    Directive::new(c"hello", Context::LOCATION, Arguments::exactly(1), set_hello),
    Directive::END,
];

/// What the module keeps for a location.
#[derive(Default)]
struct Location {
    name: Argument,
}

struct Hello;

// SAFETY: the index of the table above, whose context is this type's.
unsafe impl HttpModule for Hello {
    type Main = ();
    type Server = ();
    type Location = Location;
    type Request = ();

    fn index() -> usize {
        // SAFETY: nginx writes it once, when it loads the module.
        unsafe { MODULE.ctx_index }
    }

    fn preconfiguration(conf: &mut Conf) -> Result<(), Refused> {
        conf.add_variable::<Agent>(b"hello_agent", VariableFlags::default(), 0).ok_or(Refused::Told)
    }

    fn postconfiguration(conf: &mut Conf) -> Result<(), Refused> {
        conf.add_handler::<Greeting>(Phase::Access).ok_or(Refused::Told)
    }
}

/// `hello NAME;`
fn set_hello(conf: &mut Conf) -> Result<(), Refused> {
    let name = conf.argument();
    if name.is_empty() {
        return Err(conf.refuse("\"hello\" needs a name"));
    }
    conf.location::<Hello>().name = name;
    Ok(())
}

struct Greeting;

impl PhaseHandler for Greeting {
    const NAME: &'static str = "hello";

    fn run(request: &Request) -> Next<'_> {
        let name = request.location_conf::<Hello>().name.bytes();
        match name.is_empty() || request.push_response_header(b"Hello", name).is_some() {
            true => Code::DECLINED.into(),
            false => Code::INTERNAL_ERROR.into(),
        }
    }
}

struct Agent;

impl Variable for Agent {
    fn get<'r>(request: &'r Request, _: usize) -> Lookup<'r> {
        let mut headers = request.headers();
        let agent = headers.find(|header| header.name().eq_ignore_ascii_case(b"user-agent"))?;
        Some(agent.value().into())
    }
}
