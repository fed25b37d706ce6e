// Several PrefillCores and their plans: whenever Assigns, Starts and Cancels reach each of them, in
// the order of sending, no two wait for each other in their pieces (invariant 7). When a stream
// breaks, what was on its way is lost; the plans whose Assigns were are cancelled. Nothing has a
// deadline that could hide a ring.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <random>

#include "scheduler/worker/prefill/prefill_core.h"
#include "scheduler/worker/testing/core_testing.h"

namespace skein::scheduler {
namespace {

constexpr Epoch kEpoch{5};

class Members {
 public:
  explicit Members(uint64_t seed);

  // Plans, cancels and deliveries at random; then all that is left.
  void Run();

 private:
  // From the orchestrator to an instance.
  struct Message {
    enum class Kind { kAssign, kStart, kCancel };
    Kind kind = Kind::kAssign;
    uint64_t serial = 0;  // of the plan
    std::function<void()> deliver;
  };
  struct Instance {
    std::unique_ptr<PrefillCore> core;
    std::optional<RunStep> step;  // in flight
    std::deque<Message> stream;   // on its way, in order
  };
  struct Plan {
    SpecPtr spec;
    AssignRequest assign;  // with all chunks so far
    size_t told = 0;       // so many of its members
    int64_t planned_tokens = 0;
    bool placed = false;
    bool cancelled = false;
    size_t computed = 0;  // by so many members
  };

  uint64_t Draw(uint64_t below) { return random_() % below; }
  void Send(std::function<void()> message) { messages_.push_back(std::move(message)); }
  void SendTo(size_t instance, Message message) {
    instances_[instance].stream.push_back(std::move(message));
  }
  bool Idle() const;
  void DeliverOne();
  void Break(size_t instance);
  void AddPlan();
  void AddChunk(Plan& plan);
  void Cancel(Plan& plan);
  void Place(Plan& plan);
  void SendStart(size_t instance, Plan& plan);
  void Do(size_t instance, const PrefillEvent& event);
  void Enter(size_t instance, const RunStep& step);
  void Done(size_t instance, uint64_t step, const absl::Status& status);

  std::mt19937_64 random_;
  std::vector<Instance> instances_;  // i has id i + 1
  std::map<uint64_t, Plan> plans_;   // by serial
  std::vector<std::function<void()>> messages_;
  std::map<std::pair<GroupId, int>, std::map<size_t, uint64_t>> meetings_;  // steps by instance
  uint64_t sequence_ = 0;
  uint64_t calls_ = 0;
};

Members::Members(uint64_t seed) : random_(seed), instances_(3 + seed % 4) {
  for (size_t i = 0; i < instances_.size(); ++i) {
    PrefillConfig config;
    config.membership.identity = testing::Identity(Role::kPrefill, 10000);
    config.membership.identity.incarnation = {i + 7};
    config.batch = {.max_batch_tokens = 8};
    config.open_ahead = 1000;
    config.membership.answer_timeout_us = kNever / 2;
    instances_[i].core = std::make_unique<PrefillCore>(config);
    Do(i, Tick{});
    Do(i, RegisterReplied{{absl::OkStatus(), {i + 1}, 1'000'000'000}});
  }
}

void Members::Run() {
  for (int i = 0; i < 120; ++i) {
    const uint64_t what = Draw(10);
    if (what < 4) {
      AddPlan();
    } else if (!plans_.empty()) {
      Plan& plan = plans_.at(1 + Draw(plans_.size()));
      what < 9 ? AddChunk(plan) : Cancel(plan);
    }
    for (uint64_t k = Draw(12); k > 0; --k) DeliverOne();
    if (Draw(20) == 0) Break(Draw(instances_.size()));
  }
  for (auto& [serial, plan] : plans_) {
    while (!plan.cancelled && plan.planned_tokens < PromptTokens(*plan.spec)) AddChunk(plan);
  }
  while (!Idle() && !::testing::Test::HasFailure()) DeliverOne();
  for (size_t i = 0; i < instances_.size(); ++i) {
    EXPECT_FALSE(instances_[i].step.has_value()) << "instance " << i + 1 << " waits for ever";
  }
  for (const auto& [serial, plan] : plans_) {
    if (plan.cancelled) continue;
    EXPECT_EQ(plan.computed, plan.assign.members.size()) << "plan " << serial;
  }
}

bool Members::Idle() const {
  return messages_.empty() && std::all_of(instances_.begin(), instances_.end(),
                                          [](const Instance& one) { return one.stream.empty(); });
}

// As a resync does.
void Members::Break(size_t instance) {
  const std::deque<Message> lost = std::exchange(instances_[instance].stream, {});
  for (const Message& message : lost) {
    Plan& plan = plans_.at(message.serial);
    if (message.kind == Message::Kind::kAssign && !plan.cancelled) Cancel(plan);
  }
  for (const Message& message : lost) {
    if (message.kind == Message::Kind::kAssign) continue;
    if (message.kind == Message::Kind::kStart && plans_.at(message.serial).cancelled) continue;
    SendTo(instance, message);
  }
}

void Members::DeliverOne() {
  const size_t instance = Draw(instances_.size());
  if (std::deque<Message>& stream = instances_[instance].stream; !stream.empty() && Draw(2) == 0) {
    const std::function<void()> deliver = std::move(stream.front().deliver);
    stream.pop_front();
    return deliver();
  }
  if (messages_.empty()) return;
  std::swap(messages_[Draw(messages_.size())], messages_.back());
  const std::function<void()> message = std::move(messages_.back());
  messages_.pop_back();
  message();
}

void Members::AddPlan() {
  const uint64_t serial = plans_.size() + 1;
  Plan& plan = plans_[serial];
  plan.spec = testing::Spec(serial, 1 + static_cast<int64_t>(Draw(60)));
  plan.assign.spec = plan.spec;
  plan.assign.epoch = kEpoch;
  AddChunk(plan);
}

void Members::AddChunk(Plan& plan) {
  const int64_t rest = PromptTokens(*plan.spec) - plan.planned_tokens;
  if (rest == 0 || plan.cancelled) return;
  std::vector<PlanMember>& members = plan.assign.members;
  for (size_t i = 0; i < instances_.size(); ++i) {
    const bool has = std::any_of(members.begin(), members.end(), [&](const PlanMember& member) {
      return member.instance == InstanceId{i + 1};
    });
    if (!has && (Draw(3) == 0 || (members.empty() && i + 1 == instances_.size()))) {
      members.push_back({{i + 1}, {i + 7}, "w", "c" + ToString({0, i + 1})});
    }
  }
  PlanChunk& chunk = plan.assign.chunks.emplace_back();
  chunk.tokens =
      Draw(2) == 0 ? rest : std::min<int64_t>(rest, 4 + 4 * static_cast<int64_t>(Draw(6)));
  for (uint32_t i = 0; i < members.size(); ++i) chunk.members.push_back(i);
  plan.planned_tokens += chunk.tokens;
  plan.assign.from_chunk = static_cast<uint32_t>(plan.assign.chunks.size() - 1);
  plan.assign.sequence = {++sequence_};
  for (size_t i = 0; i < members.size(); ++i) {
    const size_t to = members[i].instance.value - 1;
    SendTo(to, {Message::Kind::kAssign, plan.spec->id.serial, [this, to, assign = plan.assign] {
                  Do(to, AssignCalled{{++calls_}, assign});
                }});
    if (i >= plan.told && plan.placed) SendStart(to, plan);
  }
  plan.told = members.size();
}

void Members::Cancel(Plan& plan) {
  plan.cancelled = true;
  for (size_t i = 0; i < plan.assign.members.size(); ++i) {
    const size_t to = plan.assign.members[i].instance.value - 1;
    SendTo(to, {Message::Kind::kCancel, plan.spec->id.serial, [this, to, id = plan.spec->id] {
                  Do(to, CancelCalled{{id, kEpoch, "test"}});
                }});
  }
}

void Members::Place(Plan& plan) {
  if (std::exchange(plan.placed, true)) return;
  for (const PlanMember& member : plan.assign.members) {
    SendStart(member.instance.value - 1, plan);
  }
}

void Members::SendStart(size_t instance, Plan& plan) {
  SendTo(instance, {Message::Kind::kStart, plan.spec->id.serial, [this, instance, &plan] {
                      Do(instance, StartCalled{{plan.spec->id, kEpoch, {kEpoch, {99}, "d:1"}}});
                    }});
}

void Members::Do(size_t instance, const PrefillEvent& event) {
  PrefillCore& core = *instances_[instance].core;
  const std::vector<PrefillEffect> effects = core.Handle(event, 0);
  ASSERT_TRUE(core.CheckInvariants().ok()) << core.CheckInvariants();
  for (const CallPlaceDecode& call : testing::Of<CallPlaceDecode>(effects)) {
    const RequestId id = call.request.id;
    Send([this, instance, id] {
      Do(instance, PlaceDecodeReplied{id, kEpoch, {{}, {kEpoch, {99}, "d:1"}}});
    });
  }
  for (const CallOpenTransfer& call : testing::Of<CallOpenTransfer>(effects)) {
    const RequestId id = call.request.id;
    Plan& plan = plans_.at(id.serial);
    if (plan.assign.members[0].instance != InstanceId{instance + 1}) continue;
    Send([this, instance, id, &plan] {  // the lead's: the transfer is open
      const auto blocks = static_cast<size_t>((PromptTokens(*plan.spec) + 3) / 4);
      Do(instance,
         OpenTransferReplied{id, kEpoch, {{}, std::vector<BlockId>(blocks), {}, "m", kNever / 2}});
      Place(plan);
    });
  }
  for (const RunStep& step : testing::Of<RunStep>(effects)) Enter(instance, step);
  for (const AbortStep& abort : testing::Of<AbortStep>(effects)) {
    Send([this, instance, step = abort.step] {
      Done(instance, step, absl::CancelledError("aborted"));
    });
  }
}

void Members::Enter(size_t instance, const RunStep& step) {
  ASSERT_FALSE(instances_[instance].step.has_value());
  instances_[instance].step = step;
  const RingPart& part = *step.sequences[0].ring;
  auto& there = meetings_[{part.group, part.piece.index}];
  there[instance] = step.step;
  if (there.size() < part.piece.members.size()) return;
  for (const auto& [member, number] : there) {
    Send([this, member = member, number = number] { Done(member, number, absl::OkStatus()); });
  }
}

void Members::Done(size_t instance, uint64_t number, const absl::Status& status) {
  Instance& member = instances_[instance];
  if (!member.step.has_value() || member.step->step != number) return;  // has ended meanwhile
  const StepSequence ran = member.step->sequences[0];
  member.step.reset();
  const RingPart& part = *ran.ring;
  if (status.ok() && part.piece.last) ++plans_.at(ran.id.serial).computed;
  if (!status.ok()) meetings_[{part.group, part.piece.index}].erase(instance);
  StepDone done{number, status, {}};
  if (status.ok()) done.results.push_back({1, "p", ""});
  Do(instance, done);
}

TEST(PrefillOrderTest, Invariant7NobodyWaitsInARing) {
  for (uint64_t seed = 1; seed <= 100 && !HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    Members(seed).Run();
  }
}

}  // namespace
}  // namespace skein::scheduler
