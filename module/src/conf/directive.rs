//! What directives have in common: how they are refused, and what their arguments are.

use crate::conf::{Core, CoreConf};
use nginx::{Argument, Conf, Refused, VariableIndex};
use oxigress_core::text::line::Escaped;
use std::fmt::Display;

/// Says why, with file and line, and refuses the directive.
pub fn refuse(conf: &Conf, reason: impl Display) -> Refused {
    conf.refuse(Escaped(reason))
}

/// The name of the variable that the directive's argument is.
pub fn variable_name(conf: &Conf) -> Result<Vec<u8>, Refused> {
    let argument = conf.argument();
    argument.variable_name().map(<[u8]>::to_vec).ok_or_else(|| {
        let shown = argument.bytes().escape_ascii();
        refuse(conf, format_args!("invalid variable name \"{shown}\": it begins with \"$\""))
    })
}

/// The number of the variable that the directive's argument is.
pub fn variable(conf: &Conf) -> Result<VariableIndex, Refused> {
    conf.variable_index(&variable_name(conf)?).ok_or(Refused::Told)
}

/// Refuses a directive that stands before `ingress_zone`, or without it.
pub fn need_zone(conf: &mut Conf, directive: &str) -> Result<(), Refused> {
    if has_zone(conf) {
        return Ok(());
    }
    let reason = format_args!("\"{directive}\" needs an \"ingress_zone NAME SIZE;\" before http");
    Err(refuse(conf, reason))
}

/// `ingress_zone` has been read.
pub fn has_zone(conf: &mut Conf) -> bool {
    conf.core::<Core>().is_some_and(|core| core.zone.is_some())
}

/// What the core module keeps for the cycle that is read.
pub fn core_conf(conf: &mut Conf) -> Result<&mut CoreConf, Refused> {
    conf.core::<Core>().ok_or(Refused::Told)
}

/// The directive's argument as the path of a file.
pub fn file(conf: &Conf, directive: &str) -> Result<Argument, Refused> {
    let path = conf.argument();
    if path.is_empty() {
        return Err(refuse(conf, format_args!("\"{directive}\" needs the path of a file")));
    }
    conf.full_path(&path).ok_or(Refused::Told)
}
