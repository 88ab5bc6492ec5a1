//! The small doors of the test kit work on the reference store, on both of its clocks.

mod on_a_clock_that_stands {
    use onetake_testkit::MemoryRig;

    onetake_testkit::miniatures!(MemoryRig::default());
}

mod on_a_clock_that_runs {
    use onetake_testkit::RunningRig;

    onetake_testkit::miniatures!(RunningRig);
}
