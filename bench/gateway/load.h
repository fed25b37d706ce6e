// How much a load client asks for, and what it saw. Both clients of this bench use these.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace skein::bench {

// Microseconds of the monotonic clock.
int64_t NowUs();

// When a run starts no more streams: whichever comes first. Streams under way are always awaited.
struct Limit {
  int64_t streams_max = INT64_MAX;
  double seconds_max = 60;
};

struct StreamTimes {
  int64_t ttft_us = 0;   // from the request's first byte to its first token
  int64_t total_us = 0;  // to the end of the answer
  int64_t start_us = 0;  // of the request, from the start of the run; SseClient alone tells it
};

struct Samples {
  std::vector<StreamTimes> streams;  // that ended well
  int64_t in_time = 0;               // of these, how many before seconds_max was over
  double seconds = 0;                // from the start to seconds_max, or to the end if earlier
  int64_t errors = 0;
  std::string first_error;

  void Fail(std::string why);
  // Appends what another run of the same load saw.
  void Add(const Samples& other);
};

// The value below which the share `q` (0 to 1) of `values` lies; 0 when there are none.
int64_t Quantile(std::vector<int64_t> values, double q);

}  // namespace skein::bench
