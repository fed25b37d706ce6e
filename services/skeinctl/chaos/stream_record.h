// One streamed answer as a client got it. Times are seconds from the start of the load.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace skein::services::chaos {

// What a client got, token by token.
struct Answer {
  std::vector<int32_t> tokens;
  std::string text;
  std::string finish_reason;  // empty: none came
};

// A request that is sent again and again.
struct StreamRequest {
  std::vector<int32_t> prompt;
  int64_t output_tokens = 0;
  double temperature = 0;
  uint64_t seed = 0;
};

struct StreamRecord {
  size_t request = 0;  // index of its StreamRequest
  size_t router = 0;   // index of the load's router that was tried last
  // A request sent because of a fault, until one of its chain gets a first token.
  int64_t probed_fault = -1;  // index of the fault; -1: no probe
  int64_t probe_chain = 0;    // probes of one chain follow each other

  double sent_s = 0;
  double end_s = -1;            // negative: it has not ended
  std::vector<double> token_s;  // when each token of `answer` came
  Answer answer;

  int finishes = 0;           // finish reasons that came
  bool done = false;          // [DONE] came
  int64_t usage_tokens = -1;  // as the server counts them; -1: it did not say
  std::string error;          // kind: "connect", "HTTP 503", ...; empty: none
  std::string message;        // the error's text for people
  bool hung = false;          // no end within the bound

  bool ended() const { return end_s >= 0; }
  bool whole() const { return ended() && done && finishes == 1 && error.empty() && !hung; }
  // It had tokens at `time_s` and more were to come.
  bool RunsAt(double time_s) const {
    return !token_s.empty() && token_s.front() <= time_s && (!ended() || end_s > time_s);
  }
};

}  // namespace skein::services::chaos
