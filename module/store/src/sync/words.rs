//! Words that loom watches without making a choice at each of them: an access that is not ordered after the
//! last write (and a write that is not ordered after the last reads) fails the model in any interleaving.

use loom::cell::UnsafeCell;
use std::cell::OnceCell;
use std::sync::atomic::Ordering;
use std::sync::atomic::Ordering::Relaxed;

/// Reports accesses to memory elsewhere to loom.
///
/// Made at the first access, which in the store is a write: a model of a few records pays for those only.
#[derive(Default)]
pub(crate) struct Watch(OnceCell<UnsafeCell<()>>);

impl Watch {
    fn cell(&self) -> &UnsafeCell<()> {
        self.0.get_or_init(|| UnsafeCell::new(()))
    }

    #[track_caller]
    pub(crate) fn read(&self) {
        self.cell().with(|_| ());
    }

    #[track_caller]
    pub(crate) fn write(&self) {
        self.cell().with_mut(|_| ());
    }
}

macro_rules! ordered {
    ($name:ident, $real:ident, $number:ty) => {
        /// A word of the header.
        #[derive(Default)]
        pub(crate) struct $name(std::sync::atomic::$real, Watch);

        impl $name {
            #[track_caller]
            pub(crate) fn load(&self, _: Ordering) -> $number {
                self.1.read();
                self.0.load(Relaxed)
            }

            #[track_caller]
            pub(crate) fn store(&self, value: $number, _: Ordering) {
                self.1.write();
                self.0.store(value, Relaxed);
            }
        }
    };
}

ordered!(OrderedU32, AtomicU32, u32);
ordered!(OrderedU64, AtomicU64, u64);
