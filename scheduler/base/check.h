// SKEIN_INVARIANT ends the process when an invariant is violated, in release builds too. Operating
// errors are absl::Status.
#pragma once

#include <cstdio>
#include <cstdlib>

#define SKEIN_INVARIANT(condition)                                                       \
  do {                                                                                   \
    if (!(condition)) [[unlikely]] {                                                     \
      std::fprintf(stderr, "%s:%d: check failed: %s\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                                      \
    }                                                                                    \
  } while (false)

// The same with a text that describes the violation.
#define SKEIN_INVARIANT_MSG(condition, text)                                                       \
  do {                                                                                             \
    if (!(condition)) [[unlikely]] {                                                               \
      std::fprintf(stderr, "%s:%d: check failed: %s: %s\n", __FILE__, __LINE__, #condition, text); \
      std::abort();                                                                                \
    }                                                                                              \
  } while (false)
