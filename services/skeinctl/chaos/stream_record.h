// One answer as a client got it. Times are seconds from the start of the load.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace skein::services::chaos {

// What a client got of one choice, token by token.
struct Answer {
  std::vector<int32_t> tokens;
  std::vector<double> logprobs;  // of the tokens; empty: not asked for
  std::string text;
  std::string finish_reason;  // empty: none came
};

// A request that is sent again and again.
struct StreamRequest {
  std::string kind = "greedy";  // a word for the table
  std::vector<int32_t> prompt;
  std::string message;  // sent as a chat instead of `prompt`; empty: no chat
  int64_t output_tokens = 0;
  double temperature = 0;
  double penalty = 0;  // for frequency and presence
  uint64_t seed = 0;
  int64_t choices = 1;
  bool logprobs = false;
  bool streamed = true;
  std::string stop;  // the answer ends before this text; empty: none
};

struct ChoiceRecord {
  Answer answer;
  std::vector<double> token_s;  // when each token of `answer` came
  int finishes = 0;             // finish reasons that came
};

struct StreamRecord {
  size_t request = 0;  // index of its StreamRequest
  bool streamed = true;
  size_t router = 0;  // index of the load's router that was tried last
  // A request sent because of a fault, until one of its chain gets a first token.
  int64_t probed_fault = -1;  // index of the fault; -1: no probe
  int64_t probe_chain = 0;    // probes of one chain follow each other

  double sent_s = 0;
  double end_s = -1;            // negative: it has not ended
  std::vector<int32_t> prompt;  // its tokens, as the server tells them
  std::vector<ChoiceRecord> choices = std::vector<ChoiceRecord>(1);

  bool done = false;          // [DONE] came, or the whole body of an answer that is not streamed
  int64_t usage_tokens = -1;  // as the server counts them; -1: it did not say
  std::string error;          // kind: "connect", "HTTP 503", ...; empty: none
  std::string message;        // the error's text for people
  bool hung = false;          // no end within the bound

  bool ended() const { return end_s >= 0; }
  bool whole() const {
    return ended() && done && error.empty() && !hung &&
           std::all_of(choices.begin(), choices.end(),
                       [](const ChoiceRecord& one) { return one.finishes == 1; });
  }
  // Of any choice; negative: none came.
  double FirstTokenS() const {
    double first = -1;
    for (const ChoiceRecord& one : choices) {
      if (one.token_s.empty() || (first >= 0 && one.token_s.front() >= first)) continue;
      first = one.token_s.front();
    }
    return first;
  }
  // It had tokens at `time_s` and more were to come; an answer that is not streamed was under way.
  bool RunsAt(double time_s) const {
    const double first = streamed ? FirstTokenS() : sent_s;
    return first >= 0 && first <= time_s && (!ended() || end_s > time_s);
  }
};

}  // namespace skein::services::chaos
