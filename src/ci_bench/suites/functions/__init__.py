"""The suite `functions`: a benchmark is a decorated function, a case one point of its grid."""
