#include "services/store/election.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "scheduler/election/election_core.h"
#include "services/store/boot_time.h"
#include "services/store/leader_entry.h"
#include "services/store/task_thread.h"

namespace skein::services {

using scheduler::ElectionCore;
using scheduler::ElectionEffect;
using scheduler::ElectionEvent;
using scheduler::ElectionFailure;

class Election::Shell {
 public:
  Shell(ClusterStore* store, Options options, Hooks hooks)
      : store_(store),
        options_(std::move(options)),
        hooks_(std::move(hooks)),
        core_(options_.lease_us),
        decider_([this] { Decide(); }) {
    watch_ = store_->Watch(ElectionPrefix(options_.cell),
                           [this](const auto& snapshot) { Changed(snapshot); });
  }

  ~Shell() {
    watch_.reset();
    {
      std::lock_guard lock(mu_);
      stopping_ = true;
    }
    wake_.notify_all();
    decider_.join();
    // A call tells its end to an inbox that nothing reads any more. The tells come first: one of
    // them may pass a call on.
    teller_.Stop();
    caller_.Stop();
  }

  absl::Status Resign(int64_t timeout_us) {
    std::unique_lock lock(mu_);
    inbox_.push_back({ElectionEvent::Resign{}});
    wake_.notify_all();
    const bool ended = ended_changed_.wait_for(lock, std::chrono::microseconds(timeout_us),
                                               [this] { return ended_; });
    if (!ended) {
      return absl::DeadlineExceededError(
          "the store was not told in time that this process leads no longer");
    }
    if (gave_up_) return absl::OkStatus();
    return absl::UnavailableError("the store could not be told that this process leads no longer");
  }

  std::optional<uint64_t> Leadership() {
    std::lock_guard lock(leads_mu_);
    const bool leads =
        until_us_ != 0 && generation_ == told_generation_ && BootTimeUs() < until_us_;
    return leads ? std::optional(generation_) : std::nullopt;
  }

  double LeaseLeftS() {
    std::lock_guard lock(leads_mu_);
    if (until_us_ == 0 || generation_ != told_generation_) return 0;
    return std::max(0.0, static_cast<double>(until_us_ - BootTimeUs()) * 1e-6);
  }

  void Post(const ElectionEvent::Any& event) { Post(Input{event}); }

  void Heard() {
    {
      std::lock_guard lock(leads_mu_);
      if (!std::exchange(stands_aside_, false)) return;
    }
    Post(ElectionEvent::Heard{});
  }

 private:
  // What the deciding thread takes: an event, and what came with it for the owner.
  struct Input {
    ElectionEvent::Any event;
    absl::Status store = absl::OkStatus();  // as the sender found it
    bool seen = false;                      // `leader` is news
    std::optional<CellLeader> leader = std::nullopt;
  };

  void Post(Input input) {
    {
      std::lock_guard lock(mu_);
      inbox_.push_back(std::move(input));
    }
    wake_.notify_all();
  }

  // On a thread of the store.
  void Changed(const absl::StatusOr<StoreSnapshot>& snapshot) {
    absl::StatusOr<ElectionEntries> found =
        snapshot.ok() ? ReadElection(options_.cell, *snapshot) : snapshot.status();
    if (!found.ok()) return Post(Input{ElectionEvent::Unseen{}, found.status()});
    Post(Input{ElectionEvent::Seen{found->view}, absl::OkStatus(), true, std::move(found->leader)});
  }

  // The deciding thread. ---------------------------------------------------------------------

  void Decide() {
    std::unique_lock lock(mu_);
    while (!stopping_) {
      const int64_t now = BootTimeUs();
      const int64_t next = core_.NextDeadline();
      if (inbox_.empty() && now < next) {
        // A host that slept wakes this thread late, not too early; Leads() does not depend on it.
        if (next == scheduler::kNever) {
          wake_.wait(lock);
        } else {
          wake_.wait_for(lock, std::chrono::microseconds(next - now));
        }
        continue;
      }
      Input input{ElectionEvent::Tick{}};
      const bool tick = inbox_.empty();
      if (!tick) {
        input = std::move(inbox_.front());
        inbox_.pop_front();
      }
      lock.unlock();
      if (!tick) TellStore(input);
      Execute(Handle(input.event));
      lock.lock();
    }
  }

  // Under the lock, clock included: what Leadership() has denied once because the lease was over is
  // over for the core, too, which then tells `lost`.
  ElectionCore::Effects Handle(const ElectionEvent::Any& event) {
    std::lock_guard lock(leads_mu_);
    ElectionCore::Effects effects = core_.Handle(event, BootTimeUs());
    until_us_ = core_.LeadsUntil();
    generation_ = core_.generation();
    stands_aside_ = core_.StandsAside();
    return effects;
  }

  void Execute(ElectionCore::Effects effects) {
    for (auto& effect : effects) {
      std::visit([this](auto& e) { On(e); }, effect);
    }
    if (!core_.Ended()) return;
    // After all that is still to be told.
    teller_.Post([this, gave_up = core_.gave_up()] {
      {
        std::lock_guard lock(mu_);
        ended_ = true;
        gave_up_ = gave_up;
      }
      ended_changed_.notify_all();
    });
  }

  static bool FromOwner(const ElectionEvent::Any& event) {
    return std::holds_alternative<ElectionEvent::Resign>(event) ||
           std::holds_alternative<ElectionEvent::StepAside>(event) ||
           std::holds_alternative<ElectionEvent::Heard>(event) ||
           std::holds_alternative<ElectionEvent::Raise>(event);
  }

  void TellStore(const Input& input) {
    if (!FromOwner(input.event) && std::exchange(store_ok_, input.store.ok()) != input.store.ok()) {
      teller_.Post([this, status = input.store] {
        if (hooks_.store) hooks_.store(status);
      });
    }
    if (!input.seen) return;
    const bool own = input.leader.has_value() && input.leader->incarnation == options_.incarnation;
    const std::optional<CellLeader> leader = own ? std::nullopt : input.leader;
    if (std::exchange(leader_told_, true) && leader == leader_) return;
    leader_ = leader;
    teller_.Post([this, leader] {
      if (hooks_.leader_is) hooks_.leader_is(leader);
    });
  }

  void On(const ElectionEffect::Led& effect) {
    teller_.Post([this, generation = effect.generation] {
      {
        std::lock_guard lock(leads_mu_);
        told_generation_ = generation;
      }
      if (hooks_.led) hooks_.led(generation);
    });
  }
  void On(const ElectionEffect::Lost& effect) {
    teller_.Post([this, why = effect.why] {
      if (hooks_.lost) hooks_.lost(why);
    });
  }
  void On(const ElectionEffect::Grant& effect) {
    caller_.Post([this, effect] {
      const auto lease = store_->GrantLease(effect.ttl_us, effect.timeout_us);
      if (!lease.ok()) return CallFailed(lease.status());
      Post(ElectionEvent::Granted{lease->id, lease->ttl_us});
    });
  }
  void On(const ElectionEffect::Claim& effect) {
    const CellLeader self = {options_.endpoint, options_.incarnation, effect.generation};
    StoreCommit commit;
    commit.expected = {{LeaderKey(options_.cell), 0},
                       {GenerationKey(options_.cell), effect.generation_revision}};
    commit.puts = {{LeaderKey(options_.cell), WriteLeader(self), effect.lease},
                   {GenerationKey(options_.cell), absl::StrCat(effect.generation), 0}};
    PostCommit(std::move(commit), effect.timeout_us);
  }
  void On(const ElectionEffect::PutGeneration& effect) {
    StoreCommit commit;
    commit.expected = {{LeaderKey(options_.cell), effect.leader_revision},
                       {GenerationKey(options_.cell), effect.generation_revision}};
    commit.puts = {{GenerationKey(options_.cell), absl::StrCat(effect.generation), 0}};
    PostCommit(std::move(commit), effect.timeout_us);
  }
  void On(const ElectionEffect::Renew& effect) {
    caller_.Post([this, effect] {
      const auto ttl_us = store_->RenewLease(effect.lease, effect.timeout_us);
      if (!ttl_us.ok()) return CallFailed(ttl_us.status());
      Post(ElectionEvent::Renewed{*ttl_us});
    });
  }
  // Behind a `lost` that is still to be told: the next leader begins after the owner has ended.
  void On(const ElectionEffect::Revoke& effect) {
    teller_.Post([this, effect] {
      caller_.Post([this, effect] {
        const absl::Status status = store_->RevokeLease(effect.lease, effect.timeout_us);
        if (!status.ok()) return CallFailed(status);
        Post(ElectionEvent::Revoked{});
      });
    });
  }

  void PostCommit(StoreCommit commit, int64_t timeout_us) {
    caller_.Post([this, commit = std::move(commit), timeout_us] {
      const auto revision = store_->Commit(commit, timeout_us);
      if (!revision.ok()) return CallFailed(revision.status());
      Post(ElectionEvent::Committed{*revision});
    });
  }

  // The calling thread.
  void CallFailed(const absl::Status& status) {
    const bool refused = absl::IsAborted(status) || absl::IsNotFound(status);
    Post(Input{
        ElectionEvent::Failed{refused ? ElectionFailure::kRefused : ElectionFailure::kUnknown},
        refused ? absl::OkStatus() : status});
  }

  ClusterStore* const store_;
  const Options options_;
  const Hooks hooks_;

  std::mutex mu_;
  std::condition_variable wake_;
  std::condition_variable ended_changed_;
  std::deque<Input> inbox_;  // few: the watch joins its news, and one call is in flight
  bool stopping_ = false;
  bool ended_ = false;
  bool gave_up_ = false;

  std::mutex leads_mu_;
  int64_t until_us_ = 0;
  uint64_t generation_ = 0;
  uint64_t told_generation_ = 0;  // `led` has begun for it
  bool stands_aside_ = false;     // and nobody was heard since

  // Of the deciding thread.
  ElectionCore core_;
  bool store_ok_ = true;
  bool leader_told_ = false;
  std::optional<CellLeader> leader_;

  TaskThread caller_;  // calls the store
  TaskThread teller_;  // runs the hooks
  std::unique_ptr<StoreWatch> watch_;
  std::thread decider_;  // last: it uses the others
};

absl::Status Election::Check(const Options& options) {
  if (absl::Status named = CheckCellName(options.cell); !named.ok()) return named;
  if (options.endpoint.empty() || options.endpoint.find(' ') != std::string::npos) {
    return absl::InvalidArgumentError(
        absl::StrCat("the leader's endpoint has to be HOST:PORT, not '", options.endpoint, "'"));
  }
  if (options.incarnation == 0) return absl::InvalidArgumentError("the incarnation is 0");
  if (options.lease_us < 100'000 || options.lease_us > 60'000'000) {
    return absl::InvalidArgumentError(
        absl::StrCat("the leader's lease has to be 0.1 to 60 seconds, not ",
                     static_cast<double>(options.lease_us) / 1e6));
  }
  return absl::OkStatus();
}

Election::Election(ClusterStore* store, Options options, Hooks hooks)
    : shell_(std::make_unique<Shell>(store, std::move(options), std::move(hooks))) {}
Election::~Election() = default;

absl::Status Election::Resign(int64_t timeout_us) { return shell_->Resign(timeout_us); }
bool Election::Leads() const { return shell_->Leadership().has_value(); }
std::optional<uint64_t> Election::Leadership() const { return shell_->Leadership(); }
double Election::LeaseLeftS() const { return shell_->LeaseLeftS(); }
void Election::StepAside() { shell_->Post(ElectionEvent::StepAside{}); }
void Election::Heard() { shell_->Heard(); }
void Election::Raise(uint64_t generation) { shell_->Post(ElectionEvent::Raise{generation}); }

}  // namespace skein::services
