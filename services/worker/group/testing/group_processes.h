// A node of decode-workers in processes of their own, with a prefill-worker and an orchestrator
// that does what a test says in this one. Requests run at an instance or in a bound group; their KV
// comes by handoff, or the group computes it. Every answer is compared with an instance alone.
//
// Nothing here waits without a bound: what is not there within a minute ends the test's process
// with the state of all.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "engine/sampling/sampling_params.h"
#include "proto/decode_worker.pb.h"
#include "scheduler/base/formation_messages.h"
#include "services/worker/group/testing/tiny_model.h"
#include "services/worker/group/testing/token_reader.h"
#include "services/worker/group/testing/worker_process.h"
#include "services/worker/prefill/prefill_shell.h"
#include "services/worker/testing/formation_orchestrator.h"

namespace skein::services::testing {

// How a request got on.
struct Answer {
  enum class State { kLive, kWhole, kFailed, kLost };  // kLost: with its worker or stream

  scheduler::SpecPtr spec;
  uint64_t epoch = 0;  // of the latest attempt
  int slot = 0;        // of its worker
  int attempts = 0;
  std::vector<engine::SampledToken> output;
  State state = State::kLive;
  std::string why;     // kFailed
  bool retry = false;  // kFailed: it may be placed anew
};

// One thread uses it.
class GroupProcesses {
 public:
  using Phase = scheduler::FormationTold::Phase;
  using Switch = scheduler::Switch;
  struct Options {
    WorkerProcess::Options worker;
    int size = 4;
    scheduler::TimeUs keep_us = 60 * scheduler::kSecondUs;  // of what is prepared
  };

  explicit GroupProcesses(Options options);
  ~GroupProcesses();

  int size() const { return options_.size; }
  WorkerProcess& process(int slot) { return *slots_[Index(slot)].process; }

  // ---- formations ----

  // New communicators for the workers in these slots, and until they are there.
  void MakeGroups(const std::vector<int>& slots);
  // Ranks are those of the latest MakeGroups: as their workers were started.
  int SlotOf(int rank) const { return members_[Index(rank)]; }
  // Returns the epoch.
  uint64_t Prepare(int first, int count, std::optional<scheduler::ShiftRule> shift,
                   scheduler::OwnSequences own = scheduler::OwnSequences::kShare);
  void Commit(int first, uint64_t epoch);
  void End(int rank, uint64_t epoch, Switch how);
  // Whether the worker of that rank has told this of the epoch, or that it has ended.
  bool IsThatFar(int rank, uint64_t epoch, Phase phase);
  bool HasEnded(int rank, uint64_t epoch);
  void AwaitPhase(int first, int count, uint64_t epoch, Phase phase);
  void AwaitEnds(int first, int count, uint64_t epoch);
  std::string WhyEnded(int rank);

  // ---- requests ----

  // At the worker in the slot, in its bound group if `formation` is not 0, and then with KV by
  // handoff or computed there. Returns its serial.
  uint64_t Start(int slot, int64_t prompt_tokens, int64_t max_tokens, uint64_t formation,
                 bool handoff);
  // Places requests anew that have failed without a token: alone, at a worker that lives.
  void Retry();
  bool AnyLive();  // at workers that live
  int64_t TokensSoFar();
  // Until none is live; those that have ended are forgotten. The tokens of each are right, up to
  // where it has failed or was lost.
  struct Ends {
    int whole = 0, failed = 0, lost = 0;
    int64_t tokens = 0;
    std::string why;  // not all are whole
  };
  Ends SettleRequests();

  // ---- faults ----

  // The worker in the slot is dead: what ran there is lost.
  void Bury(int slot);
  // The worker in the slot is stopped: it gets nothing new; until it is taken back.
  void SetAside(int slot);
  void TakeBack(int slot);
  // In place of one that is dead.
  void Restart(int slot);
  bool alive(int slot) const { return slots_[Index(slot)].alive; }

  // Every living worker holds no block and its invariants hold; so does the prefill-worker.
  void ExpectAtRest();

  // Until it is so, within a minute.
  void Await(const std::function<bool()>& so, const std::string& what);
  // For people: the formation of each worker, and the requests that are live.
  std::string State();

 private:
  struct Slot {
    std::unique_ptr<WorkerProcess> process;
    uint64_t worker = 0;  // the orchestrator's number of it
    std::string endpoint;
    std::unique_ptr<TokenReader> reader;
    bool alive = false;
  };

  static size_t Index(int slot) { return static_cast<size_t>(slot); }
  void Launch(Slot* slot);
  void Meet(Slot* slot);
  void Place(Answer* answer, int slot, uint64_t formation, bool handoff);
  void Take(uint64_t worker, const v1::TokenBatch::Sequence& told);
  void TakeDropped();
  void Compare(const Answer& answer);
  uint64_t WorkerOf(int rank) const { return slots_[Index(members_[Index(rank)])].worker; }

  const Options options_;
  const std::string model_dir_;
  const std::unique_ptr<Oracle> oracle_;
  FormationOrchestrator orchestrator_;
  WorkerEngine prefill_engine_;
  PrefillShell prefill_;
  std::vector<Slot> slots_;
  std::vector<int> members_;  // the slots of the latest MakeGroups
  uint64_t next_worker_ = 0;
  uint64_t generation_ = 0;
  uint64_t formation_epoch_ = 0;
  uint64_t serial_ = 0;
  uint64_t request_epoch_ = 0;
  uint64_t plan_ = 0;

  std::mutex mutex_;
  std::map<uint64_t, Answer> answers_;  // by serial
  int64_t tokens_ = 0;
  std::string wrong_;  // what a stream said that it may not
};

}  // namespace skein::services::testing
