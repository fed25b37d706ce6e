// SKEIN_CHECK: programmer errors and violated invariants end the process, in release builds too.
// Operating errors are absl::Status.
#pragma once

#include <cstdio>
#include <cstdlib>

#define SKEIN_CHECK(condition)                                                           \
  do {                                                                                   \
    if (!(condition)) [[unlikely]] {                                                     \
      std::fprintf(stderr, "%s:%d: check failed: %s\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                                      \
    }                                                                                    \
  } while (false)

// The same with a line of text that says what was violated.
#define SKEIN_CHECK_MSG(condition, text)                                                           \
  do {                                                                                             \
    if (!(condition)) [[unlikely]] {                                                               \
      std::fprintf(stderr, "%s:%d: check failed: %s: %s\n", __FILE__, __LINE__, #condition, text); \
      std::abort();                                                                                \
    }                                                                                              \
  } while (false)
