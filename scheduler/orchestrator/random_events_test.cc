// Any event in any state is safe: likely and unlikely events in any order, over every policy.
// Checked: the core's invariants; every request ends exactly once; an epoch is assigned only when
// the epochs before it were cancelled, refused or have ended everywhere; the sequences of the
// SP Assigns to an instance grow; nothing goes to an instance whose stream is broken; nothing
// is placed at one that an operator drains; every order about formations is answered once; only
// what no instance holds alone is announced without writers, and only to a bound group; chunks that
// run in TP have tensor groups of one node, and a later Assign of a plan does not change them.
#include <algorithm>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <tuple>

#include "scheduler/orchestrator/testing/planning_testing.h"

namespace skein::scheduler {
namespace {

class RandomEventsTest : public PlanningTest {
 protected:
  // An instance holds 16,000 tokens, a group of two 32,000.
  RandomEventsTest() {
    shape_.kv_heads = 4;
    total_blocks_ = 4000;
    formations_.profiles["m"].gains = {{2, 1.6}};
    formations_.policy.min_dwell_us = kSecondUs / 2;
  }
  static void TearDownTestSuite() {
    const int runs = ::testing::UnitTest::GetInstance()->test_to_run_count();
    EXPECT_GT(switched_, 0) << "of " << runs;
    EXPECT_GT(grouped_, 0) << "of " << runs;
    EXPECT_GT(dedicated_, 0) << "of " << runs;
  }
  void Play(const char* policy, uint64_t seed, int events);

 private:
  uint64_t Draw(uint64_t below) { return random_() % below; }
  bool Chance(int percent) { return Draw(100) < static_cast<uint64_t>(percent); }
  template <class T>
  std::optional<T> TakeOne(std::vector<T>* from) {
    if (from->empty()) return std::nullopt;
    const size_t i = Draw(from->size());
    T one = (*from)[i];
    if (!Chance(10)) from->erase(from->begin() + static_cast<std::ptrdiff_t>(i));  // else: again
    return one;
  }
  absl::Status AnyStatus() {
    switch (Draw(6)) {
      case 0:
        return absl::UnavailableError("u");
      case 1:
        return absl::DeadlineExceededError("d");
      case 2:
        return absl::ResourceExhaustedError("r");
      case 3:
        return absl::FailedPreconditionError("f");
      case 4:
        return absl::CancelledError("c");
      default:
        return absl::NotFoundError("n");
    }
  }
  absl::Status MostlyOk() { return Chance(90) ? absl::OkStatus() : AnyStatus(); }

  std::set<InstanceId> Alive() {
    std::set<InstanceId> alive;
    for (const InstanceStatus& one : core_->Snapshot(now_).instances) alive.insert(one.instance);
    return alive;
  }
  void Step();
  void Send(const OrchestratorEvent& event);
  void Watch(const Effects& effects);
  void Assigned(const CallAssign& call);
  void CheckShapes(const CallAssign& call);
  void AnyReport();
  std::string NodeOf(Role role) { return Chance(role == Role::kDecode ? 85 : 50) ? "a" : "b"; }
  void Come();
  void Come(Role role, const std::string& node);
  void BreakOrConnect();
  void Order();
  void OrderFormation();
  void TellFormation();

  std::mt19937_64 random_;
  bool urgent_ = false;  // many requests are
  uint64_t submitted_ = 0;
  std::vector<InstanceId> up_;
  std::map<InstanceId, Role> roles_;
  std::vector<CallAssign> assigns_, begun_;
  std::vector<CallAnnounce> announced_;
  std::vector<CallCancel> cancels_;
  std::map<InstanceId, std::map<RequestId, HeldRequest>> held_;
  // What is known to the test.
  std::map<RequestId, int> ends_;
  std::map<RequestId, std::map<InstanceId, Epoch>> live_;
  std::map<InstanceId, PlanSequence> last_sequence_;
  std::map<InstanceId, std::string> nodes_;
  std::map<Epoch, std::vector<PlanChunk>> chunks_;  // as the first Assign of the plan had them
  std::set<InstanceId> broken_;                     // streams
  std::set<RequestId> closed_;
  std::set<InstanceId> ordered_;  // to drain
  std::set<std::tuple<InstanceId, RequestId, Epoch>> announced_once_;
  std::map<InstanceId, uint64_t> groups_;  // the latest generation that each was ordered
  std::vector<CallPrepareFormation> prepares_;
  std::set<uint64_t> committed_;
  std::map<uint64_t, int> orders_;  // of formations, by call: how often each was answered
  // Of all runs: formations that changed as ordered, those of them for urgent requests, and
  // requests announced to a group that computes them.
  static inline int64_t switched_ = 0, dedicated_ = 0, grouped_ = 0;

 protected:
  static inline int64_t in_tensor_groups_ = 0;  // chunks
};

void RandomEventsTest::Assigned(const CallAssign& call) {
  const RequestId id = call.request.spec->id;
  const std::set<InstanceId> alive = Alive();
  for (const auto& [instance, epoch] : live_[id]) {
    if (alive.count(instance) == 0 || broken_.count(instance) > 0) continue;
    EXPECT_EQ(epoch, call.request.epoch) << "two live epochs of " << ToString(id);
  }
  live_[id][call.instance] = call.request.epoch;
  if (call.request.members.empty()) return;
  EXPECT_GT(call.request.sequence, last_sequence_[call.instance]);
  last_sequence_[call.instance] = call.request.sequence;
  CheckShapes(call);
}

void RandomEventsTest::CheckShapes(const CallAssign& call) {
  std::vector<PlanChunk>& known = chunks_[call.request.epoch];
  for (size_t k = 0; k < call.request.chunks.size(); ++k) {
    const PlanChunk& chunk = call.request.chunks[k];
    if (k < known.size()) {
      EXPECT_EQ(chunk.tp, known[k].tp);
      EXPECT_EQ(chunk.members, known[k].members);
      EXPECT_EQ(chunk.estimated_us, known[k].estimated_us);
      continue;
    }
    known.push_back(chunk);
    ASSERT_TRUE(chunk.tp == 1 || chunk.tp == 2 || chunk.tp == 4) << chunk.tp;
    ASSERT_EQ(chunk.members.size() % chunk.tp, 0u);
    const auto node_of = [&](size_t rank) {
      return nodes_.at(call.request.members.at(chunk.members[rank]).instance);
    };
    for (size_t rank = 0; rank < chunk.members.size() && chunk.tp > 1; ++rank) {
      EXPECT_EQ(node_of(rank), node_of(rank / chunk.tp * chunk.tp));
    }
    in_tensor_groups_ += chunk.tp > 1 ? 1 : 0;
  }
}

void RandomEventsTest::Watch(const Effects& effects) {
  for (const OrchestratorEffect& effect : effects) {
    if (const auto* cancel = std::get_if<CallCancel>(&effect)) {
      cancels_.push_back(*cancel);
      auto& at = live_[cancel->request.id];
      const auto it = at.find(cancel->instance);
      if (it != at.end() && it->second <= cancel->request.epoch) at.erase(it);
    } else if (const auto* assign = std::get_if<CallAssign>(&effect)) {
      Assigned(*assign);
      EXPECT_EQ(ordered_.count(assign->instance), 0u);
      EXPECT_EQ(broken_.count(assign->instance), 0u);
      assigns_.push_back(*assign);
    } else if (const auto* announce = std::get_if<CallAnnounce>(&effect)) {
      const AnnounceOrder& request = announce->request;
      const bool is_new =
          announced_once_.insert({announce->instance, request.spec->id, request.epoch}).second;
      const bool ordered = ordered_.count(announce->instance) > 0;
      EXPECT_FALSE(is_new && ordered);  // one that is not new names more writers
      EXPECT_EQ(broken_.count(announce->instance), 0u);
      announced_.push_back(*announce);
      if (core_->StateOf(request.spec->id) == "grouping") {
        EXPECT_GT(request.spec->prompt_tokens + request.spec->max_tokens, total_blocks_ * 4);
        EXPECT_NE(request.formation, 0u);
        EXPECT_TRUE(request.writers.empty());
        ++grouped_;
      }
    } else if (const auto* group = std::get_if<CallGroup>(&effect)) {
      groups_[group->instance] = group->request.generation;
    } else if (const auto* prepare = std::get_if<CallPrepareFormation>(&effect)) {
      EXPECT_EQ(broken_.count(prepare->instance), 0u);
      prepares_.push_back(*prepare);
    } else if (const auto* commit = std::get_if<CallCommitFormation>(&effect)) {
      committed_.insert(commit->request.epoch);
    } else if (const auto* answer = std::get_if<AnswerFormation>(&effect)) {
      EXPECT_EQ(++orders_.at(answer->call.value), 1);
    } else if (const auto* switched = std::get_if<FormationSwitched>(&effect)) {
      const bool done = switched->ended.outcome == orchestrator::SwitchOutcome::kDone;
      const bool urgent = switched->ended.why.find("priority") != std::string::npos;
      switched_ += done ? 1 : 0;
      dedicated_ += done && urgent ? 1 : 0;
    }
  }
  for (const SendPlanUpdate& end : Ends(effects)) {
    EXPECT_EQ(++ends_[end.id], 1) << ToString(end.id);
    EXPECT_EQ(closed_.count(end.id), 0u);
  }
}

void RandomEventsTest::Send(const OrchestratorEvent& event) { Watch(Do(event)); }

void RandomEventsTest::Come() {
  const Role role = Chance(60) ? Role::kPrefill : Role::kDecode;
  Come(role, NodeOf(role));
}

void RandomEventsTest::Come(Role role, const std::string& node) {
  const uint64_t incarnation = ++last_incarnation_;
  const Effects effects = Do(RegisterCalled{Call(), {Identity(role, incarnation, node)}});
  Watch(effects);
  const InstanceId id = Of<AnswerRegister>(effects)[0].reply.instance;
  incarnations_[id] = {incarnation};
  roles_[id] = role;
  nodes_[id] = node;
  streams_[id] = {calls_};
  up_.push_back(id);
}

// What was sent and is not answered yet is lost with the stream, some of it after it arrived.
void RandomEventsTest::BreakOrConnect() {
  const InstanceId id = up_[Draw(up_.size())];
  if (broken_.count(id) == 0 && Chance(50)) {
    std::erase_if(assigns_, [id](const CallAssign& one) { return one.instance == id; });
    std::erase_if(announced_, [id](const CallAnnounce& one) { return one.instance == id; });
    std::erase_if(begun_, [id](const CallAssign& one) { return one.instance == id; });
    broken_.insert(id);
    return Watch(Break(id));
  }
  broken_.erase(id);
  std::vector<HeldRequest> held;
  for (const auto& [request, one] : held_[id]) {
    if (Chance(90)) held.push_back(one);
  }
  const std::string node = Chance(50) ? "a" : "b";
  const Effects effects = Connect(roles_[id], incarnations_[id].value, node, held);
  streams_[id] = {calls_};
  const RegisterReply reply = Of<AnswerRegister>(effects)[0].reply;
  EXPECT_TRUE(reply.status.ok()) << reply.status;
  for (const HeldRequest& cancel : reply.cancel) {
    held_[id].erase(cancel.id);
    live_[cancel.id].erase(id);
  }
  if (reply.instance != id) {  // its lease had ended
    roles_[reply.instance] = roles_[id];
    nodes_[reply.instance] = node;
    incarnations_[reply.instance] = incarnations_[id];
    streams_[reply.instance] = streams_[id];
    held_.erase(id);
    for (auto& [request, at] : live_) at.erase(id);
    broken_.erase(reply.instance);
    std::replace(up_.begin(), up_.end(), id, reply.instance);
  }
  // What it does not hold under an epoch that is placed elsewhere, it never will.
  for (auto& [request, at] : live_) {
    const auto it = at.find(id);
    if (it == at.end()) continue;
    const bool holds =
        std::any_of(held.begin(), held.end(), [&, request = request](const HeldRequest& one) {
          return one.id == request && one.epoch == it->second;
        });
    if (!holds) at.erase(it);
  }
  Watch(effects);
}

void RandomEventsTest::Order() {
  const InstanceId id = up_[Draw(up_.size())];
  const bool undo = Chance(50);
  const Effects effects = Do(DrainCalled{Call(), {.instance = id, .undo = undo, .force = true}});
  if (Of<AnswerDrain>(effects).at(0).reply.status.ok()) {
    undo ? static_cast<void>(ordered_.erase(id)) : static_cast<void>(ordered_.insert(id));
  }
  Watch(effects);
}

void RandomEventsTest::OrderFormation() {
  using Order = orchestrator::FormationOrder;
  Order order;
  order.act = Chance(60) ? Order::Act::kBind : static_cast<Order::Act>(Draw(4));
  order.how = Chance(50) ? Switch::kHard : Switch::kSequential;
  order.own = static_cast<OwnSequences>(Draw(4));
  if (Chance(60)) {
    order.group = Chance(50) ? "m@a" : "m@b";
    order.size = Chance(70) ? 2 : static_cast<int32_t>(1 + Draw(4));
  } else {
    for (uint64_t i = 1 + Draw(2); i > 0; --i) order.instances.push_back(up_[Draw(up_.size())]);
  }
  const CallId call = Call();
  orders_[call.value] = 0;
  Send(FormationCalled{call, order});
}

// Mostly what a member would tell of what it was asked, twice at times; else anything.
void RandomEventsTest::TellFormation() {
  using Phase = FormationTold::Phase;
  const auto asked = TakeOne(&prepares_);
  if (!asked.has_value() || broken_.count(asked->instance) > 0) return;
  if (roles_.count(asked->instance) == 0) return;
  const auto tell = [&](uint64_t epoch, Phase phase) {
    Send(FormationReported{asked->instance, {.epoch = epoch, .phase = phase, .why = AnyStatus()}});
  };
  const uint64_t epoch = asked->request.epoch;
  if (Chance(2)) return tell(1 + Draw(FirstNumberOf(1) + 100), static_cast<Phase>(Draw(3)));
  if (Chance(5)) return tell(epoch, Chance(80) ? Phase::kEnded : Phase::kBound);
  tell(epoch, committed_.count(epoch) > 0 ? Phase::kBound : Phase::kPrepared);
  if (Chance(90)) prepares_.push_back(*asked);
}

void RandomEventsTest::AnyReport() {
  const InstanceId id = up_[Draw(up_.size())];
  std::vector<HeldRequest> held;
  std::vector<EndedRequest> ended;
  for (auto it = held_[id].begin(); it != held_[id].end();) {
    HeldRequest& one = it->second;
    if (Chance(20)) {
      ended.push_back(
          {one.id, one.epoch, FinishReason::kStop, Chance(80) ? absl::OkStatus() : AnyStatus()});
      auto& at = live_[one.id];
      if (at.count(id) > 0 && at[id] == one.epoch) at.erase(id);
      it = held_[id].erase(it);
      continue;
    }
    if (Chance(40)) ++one.chunks_done;
    one.chunk_running_us = Chance(50) ? static_cast<TimeUs>(Draw(1000000)) : -1;
    if (Chance(97)) held.push_back(one);
    ++it;
  }
  if (Chance(5)) {
    held.push_back({{7, 1 + Draw(submitted_ + 1)}, {FirstNumberOf(1) + Draw(500)}, true, 9, 9});
  }
  if (Chance(5)) {
    ended.push_back({{7, 1 + Draw(submitted_ + 1)},
                     {FirstNumberOf(1) + Draw(500)},
                     FinishReason::kError,
                     AnyStatus()});
  }
  WorkerLoad load;
  load.free_blocks = Chance(80) ? 100000 : static_cast<int64_t>(Draw(2000));
  load.total_blocks = 100000;
  load.draining = Chance(5);
  if (roles_[id] == Role::kDecode) {
    load.groups_made = groups_.count(id) > 0 ? groups_.at(id) : 0;
    if (Chance(3)) std::swap(load.groups_made, load.groups_failed);
  }
  if (broken_.count(id) > 0) return;
  Send(ReportCalled{Call(),
                    {.instance = id,
                     .incarnation = incarnations_[id],
                     .serial = ++serial_,
                     .load = load,
                     .held = held,
                     .full = Chance(70),
                     .ended = ended,
                     .held_digest = DigestOf(held)}});
}

void RandomEventsTest::Step() {
  const TimeUs passes = static_cast<TimeUs>(Draw(Chance(95) ? 50000 : 2 * kSecondUs));
  if (Chance(70)) {
    Watch(Until(now_ + passes));
  } else {
    now_ += passes;  // the process stands still
  }
  const uint64_t kind = Draw(100);
  if (kind < 12) {
    const bool is_new = Chance(95);
    const uint64_t serial = is_new ? ++submitted_ : 1 + Draw(submitted_ + 1);
    auto spec = Spec(serial, 1 + static_cast<int64_t>(Draw(Chance(50) ? 20000 : 300)));
    const bool again = ends_.count(spec->id) > 0 || closed_.count(spec->id) > 0;
    if (again || serial > submitted_) return;
    spec->want_prompt_logprobs = Chance(10);
    if (Chance(urgent_ ? 60 : 10)) spec->priority = static_cast<int32_t>(Draw(5)) - 2;
    if (Chance(10)) spec->deadline_us = static_cast<TimeUs>(Draw(5 * kSecondUs));
    Send(SubmitCalled{spec});
  } else if (kind < 15) {
    const uint64_t serial = 1 + Draw(submitted_ + 1);
    if (ends_.count({7, serial}) == 0 && serial <= submitted_) closed_.insert({7, serial});
    Send(Closed({7, serial}));
  } else if (kind < 40) {
    const auto assign = TakeOne(&assigns_);
    if (!assign.has_value()) return;
    const absl::Status status = MostlyOk();
    if (status.ok()) {
      held_[assign->instance][assign->request.spec->id] = Held(*assign);
      begun_.push_back(*assign);
    }
    Watch(Answer(*assign, status));
  } else if (kind < 52) {
    const auto assign = TakeOne(&begun_);
    if (!assign.has_value()) return;
    const bool refused = Chance(40) && !up_.empty();
    const InstanceId by = assign->request.placed.has_value() && Chance(80)
                              ? assign->request.placed->decode
                          : refused ? up_[Draw(up_.size())]
                                    : InstanceId{};
    Watch(refused ? Ask(*assign, by, AnyStatus()) : Ask(*assign));
    if (Chance(50)) begun_.push_back(*assign);
  } else if (kind < 56) {
    if (!up_.empty()) BreakOrConnect();
  } else if (kind < 68) {
    const auto announce = TakeOne(&announced_);
    if (!announce.has_value()) return;
    const RequestId id = announce->request.spec->id;
    HeldRequest& held = held_[announce->instance][id];
    held = {.id = id, .epoch = announce->request.epoch, .opened = Chance(80)};
    if (held.opened) Send(TransferOpened{announce->instance, id, held.epoch});
  } else if (kind < 76) {
    const auto cancel = TakeOne(&cancels_);
    if (cancel.has_value()) held_[cancel->instance].erase(cancel->request.id);
  } else if (kind < 95) {
    if (!up_.empty()) AnyReport();
  } else if (kind < 96) {
    if (up_.size() < 14) Come();
  } else if (kind < 97 && up_.size() > 3) {
    const size_t i = Draw(up_.size());
    Send(UnregisterCalled{Call(), {up_[i], incarnations_[up_[i]]}});
    for (auto& [id, at] : live_) at.erase(up_[i]);
    held_.erase(up_[i]);
    up_.erase(up_.begin() + static_cast<std::ptrdiff_t>(i));
  } else if (kind < 98 && Chance(30)) {
    if (!up_.empty()) Order();
  } else if (kind < 98) {
    RollingTuning tuning;
    tuning.price = static_cast<double>(Draw(90)) / 100;
    // SP 3 is not in the profile: such tables are not taken.
    tuning.commit = {CommitMode::Kind::kFixed, 0, 1 + static_cast<int>(Draw(3))};
    Send(ReplacePlanningTables{{ImprovementRateTable::Constant(static_cast<double>(Draw(90)) / 100),
                                RollingTable::Constant(Chance(50) ? tuning : RollingTuning{})},
                               Chance(50) ? "" : "m"});
  } else {
    Send(OrchestratorTick{});
  }
  if (Chance(5) && !up_.empty()) OrderFormation();
  for (int i = 0; i < 4 && Chance(80); ++i) TellFormation();
}

void RandomEventsTest::Play(const char* policy, uint64_t seed, int events) {
  SCOPED_TRACE(std::string(policy) + " " + std::to_string(seed));
  Make(policy, 0.1);
  random_.seed(seed);
  urgent_ = seed % 2 == 0;
  if (urgent_) {  // enough for a group of them
    for (int i = 0; i < 8; ++i) Come(Role::kDecode, "a");
  }
  for (int i = 0; i < 8; ++i) Come();
  for (int i = 0; i < events && !HasFailure(); ++i) {
    Step();
  }
  // In the end everyone is gone, and so every request ends.
  Watch(Until(now_ + 700 * kSecondUs));
  for (uint64_t serial = 1; serial <= submitted_ && !HasFailure(); ++serial) {
    const RequestId id{7, serial};
    EXPECT_EQ(ends_[id] + static_cast<int>(closed_.count(id)), 1) << serial;
  }
  EXPECT_EQ(core_->Totals().requests, 0);
  for (const auto& [call, answers] : orders_) EXPECT_EQ(answers, 1) << call;
}

class RandomEvents : public RandomEventsTest,
                     public ::testing::WithParamInterface<std::tuple<const char*, uint64_t>> {};

TEST_P(RandomEvents, AreSafe) { Play(std::get<0>(GetParam()), std::get<1>(GetParam()), 2000); }

INSTANTIATE_TEST_SUITE_P(Policies, RandomEvents,
                         ::testing::Combine(::testing::Values("tetris", "single", "rolling",
                                                              "greedy", "fixed2"),
                                            ::testing::Range(uint64_t{1}, uint64_t{13})));

class RandomTensorEvents : public RandomEvents {
 protected:
  RandomTensorEvents() { latency_ = TensorTestLatency(); }
  static void TearDownTestSuite() { EXPECT_GT(in_tensor_groups_, 0); }
};

TEST_P(RandomTensorEvents, AreSafe) {
  Play(std::get<0>(GetParam()), std::get<1>(GetParam()), 1000);
}

INSTANTIATE_TEST_SUITE_P(Policies, RandomTensorEvents,
                         ::testing::Combine(::testing::Values("tetris", "rolling", "random"),
                                            ::testing::Range(uint64_t{1}, uint64_t{9})));

}  // namespace
}  // namespace skein::scheduler
