//! The aliases that the owner of a host gives it.

use crate::annotation::counterpart;
use crate::host::alias::Alias;
use crate::host::owner::Owner;
use oxigress_core::model::HostPattern;
use std::collections::BTreeSet;

/// Most rules of a host and its aliases together.
pub const MAX_COPIED_RULES: usize = 50_000;

/// Who follows `host`, as its owner says.
pub fn of(host: &HostPattern, owner: &Owner<'_>) -> BTreeSet<Alias> {
    following(host, owner, served(host, owner))
}

/// Who would follow `host` if its owner had room for all that it says: of one that has none for them, who may follow later.
pub fn written(host: &HostPattern, owner: &Owner<'_>) -> BTreeSet<Alias> {
    following(host, owner, owner.aliases().map_or(&[], |(_, all)| all))
}

fn following(host: &HostPattern, owner: &Owner<'_>, all: &[HostPattern]) -> BTreeSet<Alias> {
    let aliases = owner.aliases().into_iter().flat_map(|(by, _)| {
        let entry = |alias: &HostPattern| (alias.clone(), by.age(), false);
        all.iter().map(entry)
    });
    let www = owner.settings().find(|(_, settings)| settings.hosts.from_to_www);
    let www = www.and_then(|(by, _)| Some((counterpart(host)?, by.age(), true)));
    let all = aliases.chain(www).filter(|(alias, ..)| alias != host);
    all.map(|(host, age, is_redirected)| Alias { host, age, is_redirected }).collect()
}

/// The aliases that are served: each has all paths of the host.
pub fn served<'a>(host: &HostPattern, owner: &Owner<'a>) -> &'a [HostPattern] {
    let aliases = owner.aliases().map_or(&[][..], |(_, aliases)| aliases);
    let copies = MAX_COPIED_RULES / owner.paths(host).max(1);
    aliases.get(..copies.saturating_sub(1)).unwrap_or(aliases)
}
