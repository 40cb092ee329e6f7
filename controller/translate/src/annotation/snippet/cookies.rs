//! Flags of endpoints' cookies.
//!
//! Source:  ngx_http_proxy_cookie_flags, ngx_http_proxy_edit_cookie_flags.

use super::values::{Result, impossible};
use oxigress_core::model::policy::{CookieFlags, HeaderValue, Proxy, SameSite};

/// Most cookies whose flags a location changes.
const MOST: usize = 100;

/// Takes over a `proxy_cookie_flags` directive.
pub fn flags(cookie: &str, words: &[&str], proxy: &mut Proxy) -> Result {
    if proxy.cookie_flags.as_ref().is_some_and(|all| all.len() == MOST) {
        return impossible("more than 100 of them are too many");
    }
    if cookie.contains('$') || cookie.starts_with('~') && cookie != "~" {
        return impossible("cookies are named, or all are meant with ~: there are no patterns");
    }
    let cookie = Some(cookie).filter(|cookie| *cookie != "~").map(HeaderValue::parse);
    let mut flags = CookieFlags { cookie: cookie.transpose()?, ..CookieFlags::default() };
    for word in words {
        match word.to_ascii_lowercase().as_str() {
            "secure" => put(&mut flags.secure, true)?,
            "nosecure" => put(&mut flags.secure, false)?,
            "httponly" => put(&mut flags.http_only, true)?,
            "nohttponly" => put(&mut flags.http_only, false)?,
            "samesite=strict" => put(&mut flags.same_site, SameSite::Strict)?,
            "samesite=lax" => put(&mut flags.same_site, SameSite::Lax)?,
            "samesite=none" => put(&mut flags.same_site, SameSite::None)?,
            "nosamesite" => put(&mut flags.same_site, SameSite::Absent)?,
            _ => return impossible("a flag is secure, httponly, samesite=lax and the like"),
        }
    }
    proxy.cookie_flags.get_or_insert_default().push(flags);
    Ok(())
}

/// nginx carries out flags that contradict each other one after the other, on attributes of the same name.
fn put<T: PartialEq>(flag: &mut Option<T>, value: T) -> Result {
    if flag.as_ref().is_some_and(|known| *known != value) {
        return impossible("its flags contradict each other");
    }
    *flag = Some(value);
    Ok(())
}
