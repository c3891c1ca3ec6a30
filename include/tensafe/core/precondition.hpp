#pragma once

#include <cassert>

/// A rule that the caller of a hot, noexcept function must keep. Checked in debug builds and during constant
/// evaluation (where breaking it is a compile error); free when NDEBUG is set.
#define TENSAFE_PRECONDITION(condition) assert(condition)
