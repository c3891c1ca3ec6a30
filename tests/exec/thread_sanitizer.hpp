#pragma once

// For tests that use host_parallel. The oneTBB of a distribution is not instrumented, so ThreadSanitizer does
// not see how it hands work from thread to thread, and takes each hand-over for a race. What is suppressed
// here hides races of our own inside tasks, too: to look for those, take it out and link a oneTBB built with
// -fsanitize=thread.

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
extern "C" const char* __tsan_default_suppressions();
extern "C" const char* __tsan_default_suppressions() {
    return "race:tbb::detail\n";
}
#endif
#endif
