//! What each feature keeps, one line a part.

use crate::access::auth_subrequest::AuthSlot;
use crate::access::kept::KeptAnswers;
use crate::access::limits::{Applied, Limiter};
use crate::access::password::Checks;
use crate::access::phase::ProgressPointer;
use crate::access::{Known, Rules, buffers};
use crate::balancer::destinations::Checked;
use crate::balancer::idle::Pools;
use crate::conf::CoreConf;
use crate::headers::draining::Draining;
use crate::headers::interim::Interim;
use crate::headers::responses::Sharing;
use crate::request::policies::Cache;
use crate::route::facts::DecisionCache;
use crate::route::location::Locations;
use crate::route::mirror::{Copied, Mirrored};
use crate::stream::open::Open;
use crate::stream::passthrough::PassedThrough;
use crate::stream::tls::SessionTls;
use crate::system::memory::random;
use crate::tls::{bundles, certificate, client_certificate};
use crate::worker::parts::{Features, Has, Parts};
use nginx::Cycle;
use oxigress_core::model::policy::Policies;
use std::cell::OnceCell;

/// A type with these parts.
macro_rules! parts {
    ($(#[$about:meta])* $name:ident { $($field:ident: $part:ty,)* }) => {
        $(#[$about])*
        pub struct $name {
            $($field: $part,)*
        }

        $(impl Has<$part> for $name {
            #[inline]
            fn part(&self) -> &$part {
                &self.$field
            }

            #[inline]
            fn part_mut(&mut self) -> &mut $part {
                &mut self.$field
            }
        })*
    };
}

parts! {
    /// As long as a worker process lives.
    OfWorker {
        certificates: certificate::Parsed,
        host_policies: client_certificate::Parsed,
        bundles: bundles::Parsed,
        policies: Cache,
        decisions: DecisionCache,
        buffers: buffers::Counted,
        known_passwords: Known,
        kept_answers: KeptAnswers,
        password_checks: Checks,
        draining: Draining,
        destinations: Option<Checked>,
        pools: Pools,
        passed_through: PassedThrough,
        open_sessions: Open,
    }
}

parts! {
    /// Worked out of policies, once for each worker.
    OfPolicies {
        access: Option<Rules>,
        limiter: OnceCell<Limiter>,
        locations: Locations,
        sharing: Option<Sharing>,
        session_tls: SessionTls,
    }
}

parts! {
    /// In the pool of a request.
    #[derive(Default)]
    OfRequest {
        limits: Applied,
        auth: AuthSlot,
        mirror: Mirrored,
        interim: Interim,
    }
}

parts! {
    /// Until a request gets another route.
    #[derive(Clone, Copy, Default)]
    OfRoute {
        access: ProgressPointer,
        copied: Copied,
    }
}

impl Parts for Features {
    type Worker = OfWorker;
    type Policies = OfPolicies;
    type Request = OfRequest;
    type Route = OfRoute;

    fn of_worker(cycle: &Cycle, core: &CoreConf) -> OfWorker {
        OfWorker {
            certificates: certificate::parsed(),
            host_policies: client_certificate::parsed(),
            bundles: bundles::Parsed::default(),
            policies: Cache::default(),
            decisions: DecisionCache::default(),
            buffers: buffers::Counted::new(core),
            known_passwords: Known::new([random(), random()]),
            kept_answers: KeptAnswers::new([random(), random()]),
            password_checks: Checks::default(),
            draining: Draining::new(core),
            destinations: Checked::of(cycle),
            pools: Pools::default(),
            passed_through: PassedThrough::default(),
            open_sessions: Open::default(),
        }
    }

    fn of_policies(id: &[u8], source: &Policies) -> OfPolicies {
        OfPolicies {
            access: Rules::of(id, source),
            limiter: OnceCell::new(),
            locations: Locations::default(),
            sharing: source.cors.as_ref().map(Sharing::new),
            session_tls: SessionTls::default(),
        }
    }
}
