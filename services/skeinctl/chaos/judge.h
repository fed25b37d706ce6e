// Compares what clients got with what they would have got without a fault, and says how long a
// fault was felt. Pure.
//
// Every request is sent alone first; that answer is what each later one is held against. An answer
// that ended without an error must equal it. One that ended with an error, or hung, must be its
// beginning. A greedy answer may part from it at a near tie (near_tie.h), if that is asked for.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "services/skeinctl/chaos/stream_record.h"

namespace skein::services::chaos {

// What is wrong with one answer. Several may hold.
struct Verdict {
  bool failed = false;  // it ended with an error
  bool hung = false;    // it did not end
  // Another token, logprob, text, finish reason or count of tokens or choices, or a second end.
  bool wrong = false;
  bool near_tie = false;       // it parts from the reference at a near tie, and is right by itself
  int64_t lost_tokens = 0;     // tokens that are missing between others, or at the end
  int64_t doubled_tokens = 0;  // tokens that came again

  bool good() const {
    return !failed && !hung && !wrong && lost_tokens == 0 && doubled_tokens == 0;
  }
};

// A request's answer alone.
struct Reference {
  std::string kind;  // of the request
  bool greedy = false;
  std::vector<int32_t> prompt;
  std::vector<Answer> choices;
};
// REQUIRES record.whole().
Reference ReferenceOf(const StreamRequest& request, const StreamRecord& record);

// Whether `got`, a greedy answer, could have come from the same model, though it differs from the
// reference's token `parted`, which is `reference_token`.
using TieJudge = std::function<bool(const Reference& reference, const Answer& got, size_t parted,
                                    int32_t reference_token)>;

// `ties` null: no difference is allowed.
Verdict Judge(const StreamRecord& record, const Reference& reference, const TieJudge& ties);

// A router that was killed, or that left: the only fault whose errors its clients may see.
struct RouterLoss {
  int64_t router = -1;       // index of the load's router; -1: not known, as behind a load balancer
  bool breaks_off = false;   // its streams end with it
  bool leaves_none = false;  // it was the only one: new requests fail until it serves again
  double ended_s = 0;        // the process has ended
  double serves_again_s = 0;  // new requests were answered
};

// The moment at which something was broken, on the load's clock.
struct FaultMark {
  double at_s = 0;
  double until_s = 0;  // a process that leaves has left, a stopped one goes on; else `at_s`
  std::string what;    // "kill decode-1"
  std::optional<RouterLoss> router_loss;
};

// Whether this failure is the loss of its own router: the request ran there at that time, or it was
// refused while no router was left.
bool IsExcused(const StreamRecord& record, const FaultMark& mark);

// What clients saw of one fault.
struct FaultEffect {
  FaultMark mark;
  int64_t running = 0;  // streams that the fault met: they had tokens, and more were to come
  int64_t stalled = 0;  // those of them that paused because of it
  // Until each stream that ran or waited went on, and a new request of each chain of probes had its
  // first token. A pause counts from its begin, or from the fault if it began before. Negative: a
  // chain of probes got none.
  double recovery_s = 0;
  std::vector<double> longest_gaps_s;  // between two tokens, of each stream that it met
};

// `stall_s`: a longer gap between two tokens is a pause; shorter ones occur without a fault.
FaultEffect EffectOf(const std::vector<StreamRecord>& records, const FaultMark& mark, int64_t index,
                     double stall_s);

struct Counts {
  int64_t requests = 0;
  int64_t failed = 0;
  int64_t excused = 0;  // those of the failed ones that the loss of their own router explains
  int64_t wrong = 0;
  int64_t near_ties = 0;
  int64_t lost = 0;
  int64_t doubled = 0;
  int64_t hung = 0;
  int64_t tokens = 0;

  // None wrong, lost, doubled or hung, and none failed without an excuse.
  bool good() const;
  void Add(const Counts& other);
};

// One row of the fault table.
struct Row : Counts {
  std::string scenario;
  std::string skipped;                  // why it was not played; empty: it was
  bool clients_may_fail = false;        // a router was killed, or the only one left
  std::map<std::string, Counts> kinds;  // by the kind of request
  double seconds = 0;
  std::vector<FaultEffect> faults;
  std::map<std::string, int64_t> errors;  // by kind and message

  int64_t running() const;
  int64_t faults_that_met_streams() const;
  double recovery_s() const;  // of the slowest fault; negative: one did not recover
  double GapPercentile(double percent) const;  // 0: no gap was measured

  // As it has to be: its counts are good, and each fault was recovered from.
  bool good() const;
};

// `references[i]` is of request i. `ties`: as Judge takes it.
Row RowOf(const std::string& scenario, const std::vector<StreamRecord>& records,
          const std::vector<Reference>& references, const std::vector<FaultMark>& marks,
          double stall_s, const TieJudge& ties);

}  // namespace skein::services::chaos
