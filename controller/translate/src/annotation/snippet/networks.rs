//! `allow` and `deny` to the lists of a location's access policy.
//!
//! Shape:   nginx takes the first line that has the client's address; policies refuse the list `deny` and then admit the
//!          list `allow`. What lines say is put into lists where both mean the same.
//! Errors:  lines that the lists cannot say are left out, all of them, and close the location.

use super::values::{Left, Loss, Result, impossible};
use ipnet::IpNet;
use oxigress_core::model::policy::Policies;
use oxigress_settings::grammar::directives::Directive;

/// Most lines of one snippet.
const MOST: usize = 500;

/// Most networks of a list, those of annotations included.
const MOST_OF_ALL: usize = 10_000;

/// The lines so far; `None`: of all addresses.
#[derive(Default)]
pub struct Networks(Vec<(bool, Option<IpNet>)>);

/// What the lines mean as two lists.
#[derive(Debug, Default, PartialEq, Eq)]
struct Lists {
    allow: Option<Vec<IpNet>>,
    deny: Vec<IpNet>,
}

impl Networks {
    /// Takes over an `allow` or `deny` directive.
    pub fn add(&mut self, allows: bool, words: &[&str]) -> Result {
        let [word] = words else { return impossible("it has one address or network") };
        let network = match *word {
            "all" => None,
            word => match word.parse::<IpNet>() {
                Ok(network) => Some(network.trunc()),
                Err(_) => match word.parse::<std::net::IpAddr>() {
                    Ok(address) => Some(IpNet::from(address)),
                    Err(_) => return impossible(format!("{word:?} is no address or network")),
                },
            },
        };
        if self.0.len() == MOST {
            return impossible("more than 500 lines of addresses are too many");
        }
        self.0.push((allows, network));
        Ok(())
    }

    /// Puts the lines into the policies, behind those of annotations; answers the lines if they cannot be there.
    pub fn finish<'d>(
        self,
        directives: &'d [Directive],
        policies: &mut Policies,
    ) -> Option<Left<'d>> {
        if self.0.is_empty() {
            return None;
        }
        let lists = lists(&self.0);
        let line = directives.iter().find(|one| matches!(one.name.as_str(), "allow" | "deny"))?;
        let left =
            |why: &str, loss| Some(Left { directive: line, why: Some(why.to_owned()), loss });
        let Some(lists) = lists else {
            return left(
                "a network is allowed before a part of it is denied: swap the two lines",
                Loss::Protection,
            );
        };
        let access = policies.access.get_or_insert_default();
        // An annotation's list ends with `deny all`.
        let is_decided = access.allow.is_some();
        if !is_decided && access.deny.len() + lists.deny.len() > MOST_OF_ALL {
            return left("more than 10000 networks are too many", Loss::Protection);
        }
        if !is_decided {
            access.allow = lists.allow;
        }
        access.deny.extend(lists.deny.into_iter().filter(|_| !is_decided));
        policies.access.take_if(|access| *access == Default::default());
        match is_decided {
            true => left(
                "the annotation or ConfigMap has an allow list, which takes precedence",
                Loss::Nothing,
            ),
            false => None,
        }
    }
}

/// The lists that mean the same as the lines, up to the first one about all addresses.
fn lists(lines: &[(bool, Option<IpNet>)]) -> Option<Lists> {
    let (mut allowed, mut denied) = (Vec::new(), Vec::<IpNet>::new());
    let mut is_closed = false;
    for (allows, network) in lines {
        let Some(network) = network else {
            is_closed = !allows;
            break;
        };
        let is_decided =
            |list: &Vec<IpNet>| list.iter().any(|earlier: &IpNet| earlier.contains(network));
        if is_decided(&allowed) || is_decided(&denied) {
            continue;
        }
        if !allows && allowed.iter().any(|earlier| network.contains(earlier)) {
            return None;
        }
        if *allows { allowed.push(*network) } else { denied.push(*network) }
    }
    match is_closed {
        true => Some(Lists { allow: Some(allowed), deny: denied }),
        false => Some(Lists { allow: None, deny: denied }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::net::{IpAddr, Ipv4Addr};

    fn read(lines: &[(bool, &str)]) -> Option<Lists> {
        let mut networks = Networks::default();
        lines.iter().for_each(|(allows, word)| networks.add(*allows, &[word]).unwrap());
        lists(&networks.0)
    }

    #[test]
    fn lines_are_lists_where_both_mean_the_same() {
        let net = |text: &str| text.parse::<IpNet>().unwrap();
        assert_eq!(
            read(&[(true, "10.0.0.0/8"), (true, "::1"), (false, "all"), (true, "1.1.1.1")]),
            Some(Lists { allow: Some(vec![net("10.0.0.0/8"), net("::1/128")]), deny: vec![] })
        );
        assert_eq!(
            read(&[(false, "10.0.0.1"), (true, "10.0.0.0/8"), (false, "all")]),
            Some(Lists { allow: Some(vec![net("10.0.0.0/8")]), deny: vec![net("10.0.0.1/32")] })
        );
        assert_eq!(read(&[(true, "all"), (false, "10.0.0.1")]), Some(Lists::default()));
        assert_eq!(read(&[(true, "10.0.0.1"), (false, "10.0.0.0/8")]), None);
        assert_eq!(
            read(&[(false, "all")]),
            Some(Lists { allow: Some(vec![]), deny: vec![] }),
            "nobody"
        );
        assert!(Networks::default().add(true, &["unix:"]).is_err());
        assert!(Networks::default().add(true, &["10.0.0.0/33"]).is_err());
    }

    proptest! {
        #[test]
        fn lists_admit_whom_the_first_line_admits(
            lines in prop::collection::vec((any::<bool>(), 0..8_u8, 28..=32_u8, any::<bool>()), 0..6),
            client in 0..8_u8,
        ) {
            let address = |last| IpAddr::V4(Ipv4Addr::new(10, 0, 0, last));
            let lines: Vec<_> = lines.into_iter().map(|(allows, last, length, is_all)| {
                let network = IpNet::new(address(last), length).unwrap().trunc();
                (allows, (!is_all).then_some(network))
            }).collect();
            let client = address(client);
            let first = lines.iter().find(|(_, net)| net.is_none_or(|net| net.contains(&client)));
            let Some(found) = lists(&lines) else { return Ok(()) };
            let is_in = |list: &Vec<IpNet>| list.iter().any(|net| net.contains(&client));
            let admits = !is_in(&found.deny) && found.allow.as_ref().is_none_or(is_in);
            prop_assert_eq!(admits, first.is_none_or(|(allows, _)| *allows));
        }
    }
}
