// Nothing: a source of meshtrain_test_main that uses the headers that all tests share compiled, so
// that CMake makes them. doctest_main.cc, which makes doctest itself, cannot.
