#pragma once

#include <cassert>

/// A rule that the caller of a hot, noexcept function must keep. Checked, in constant evaluation
/// too (where breaking it is a compile error), unless NDEBUG is set; free then.
#define TENSAFE_PRECONDITION(condition) assert(condition)
