//! The module's variables, added to nginx's.

use crate::logging::variable::VARIABLES;
use crate::logging::variable::Variable;
use crate::request::Request;
use nginx::{Conf, Lookup, VariableFlags};

/// Adds them, before http{} is read; `None` when memory is out.
pub fn add(conf: &mut Conf) -> Option<()> {
    for (place, Variable { name, is_lasting, .. }) in VARIABLES.iter().enumerate() {
        // Changeable, so that a hand-written configuration may `set` one of these names itself.
        let flags = VariableFlags { is_changeable: true, is_lasting: *is_lasting };
        conf.add_variable::<Variables>(name.as_bytes(), flags, place)?;
    }
    Some(())
}

/// Looks the module's variables up by their places in [`VARIABLES`].
pub struct Variables;

impl nginx::Variable for Variables {
    fn get<'r>(request: &'r nginx::Request, place: usize) -> Lookup<'r> {
        (VARIABLES.get(place)?.value)(&Request::of(request)?)
    }
}
