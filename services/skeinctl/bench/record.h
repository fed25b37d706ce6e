// The outcome of one request of a load. Times are seconds from the start of the measured phase.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace skein::services::bench {

struct RequestRecord {
  int64_t number = 0;     // in the order of the schedule, from 0
  double intended_s = 0;  // when it should be sent; in a closed loop, when it was sent
  double sent_s = 0;
  double end_s = 0;  // last byte, or failure

  int64_t input_tokens = 0;   // counted by the server; else as requested
  int64_t output_tokens = 0;  // counted by the server; else the number of events with text
  std::vector<double>
      text_s;  // when each event with text arrived; for a whole answer, its end only

  std::string error;    // kind of error: "connect", "timeout", "HTTP 429", ...; empty: none
  std::string message;  // the error's text for people
  int status = 0;       // HTTP status; 0: no answer began

  bool ok() const { return error.empty(); }
  // Valid if ok: an answer without text is an error.
  double first_text_s() const { return text_s.front(); }
  double last_text_s() const { return text_s.back(); }
};

}  // namespace skein::services::bench
