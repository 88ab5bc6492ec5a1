//! The small doors of the test kit work on the embedded store.

mod common;

mod by_default {
    use crate::common::StandingRig;

    onetake_testkit::miniatures!(StandingRig::default());
}

mod sealed_and_from_disk {
    use crate::common::SealedRig;

    onetake_testkit::miniatures!(SealedRig::default());
}
