// The outcome of one request of a load. Times are seconds from the start of the measured phase.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace skein::services::bench {

struct RequestRecord {
  int64_t number = 0;     // in the order of the schedule, from 0
  double intended_s = 0;  // when it was to be sent; with a closed loop, when it was sent
  double sent_s = 0;
  double end_s = 0;  // its last byte, or its failure

  int64_t input_tokens = 0;    // as the server counts them; as asked for, if it does not say
  int64_t output_tokens = 0;   // likewise; the events with text, if it does not say
  std::vector<double> text_s;  // when each event with text came; of a whole answer, its end alone

  std::string error;    // its kind: "connect", "timeout", "HTTP 429", ...; empty: none
  std::string message;  // of the error, for people
  int status = 0;       // HTTP; 0: no answer began

  bool ok() const { return error.empty(); }
  // Valid if ok: an answer without any text is an error.
  double first_text_s() const { return text_s.front(); }
  double last_text_s() const { return text_s.back(); }
};

}  // namespace skein::services::bench
