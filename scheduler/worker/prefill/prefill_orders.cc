#include "scheduler/worker/prefill/prefill_orders.h"

#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "scheduler/kv/handoff_shape.h"

namespace skein::scheduler {

using Phase = PrefillRequest::Phase;

void PrefillOrders::On(const AssignCalled& event) {
  parts_.effects->push_back(AnswerAssign{event.call, {Assign(event.request)}});
}

absl::Status PrefillOrders::Assign(const AssignRequest& assign) {
  const bool plain = assign.members.empty();
  const RequestId id = assign.spec->id;
  Request* known = parts_.requests->Find(id);
  if (known != nullptr && known->epoch == assign.epoch) {
    return plain ? absl::OkStatus() : ExtendPlan(*known, assign);  // plain: a duplicate
  }
  if (absl::Status status = Accept(assign); !status.ok()) return status;
  if (known != nullptr) {
    parts_.ends->End(*known, absl::CancelledError("the request was planned again"));
    if (parts_.requests->Find(id) != nullptr) return AssignAfterOlder(assign);
  }
  const TimeUs budget = assign.spec->deadline_us;
  Request request{.spec = assign.spec,
                  .epoch = assign.epoch,
                  .sequence = assign.sequence,
                  .suspect = assign.suspect,
                  .arrived_us = *parts_.now,
                  .deadline_us = *parts_.now + (budget > 0 ? budget : config_.request_deadline_us)};
  if (assign.placed.has_value()) {
    request.placed = *assign.placed;
    request.transfer = Request::Transfer::kPlaced;
  }
  request.blocks_wanted = BlocksOf(parts_.membership->identity().shape, PromptTokens(*assign.spec));
  if (!plain) {
    if (absl::Status status = parts_.sp_plans->Add(assign); !status.ok()) return status;
    const SpPlan& plan = *parts_.sp_plans->Find(id);
    request.kind = plan.Leads() ? Request::Kind::kLead : Request::Kind::kMember;
    request.blocks_wanted = plan.BlocksWanted(parts_.requests->blocks().total);
    if (assign.from_chunk > 0) request.join_until_us = *parts_.now + config_.join_wait_us;
  }
  parts_.membership->Holds({.id = id, .epoch = assign.epoch});
  parts_.requests->Add(std::move(request));
  return absl::OkStatus();
}

// The older epoch's blocks are still in use: this one is taken up when they are not.
absl::Status PrefillOrders::AssignAfterOlder(const AssignRequest& assign) {
  const RequestId id = assign.spec->id;
  const Epoch waiting = successors_.EpochOf(id).value_or(assign.epoch);
  if (waiting > assign.epoch) return absl::FailedPreconditionError("epoch: stale");
  if (waiting < assign.epoch) {
    EndSuccessor(id, absl::CancelledError("the request was planned again"));
  }
  successors_.Add(assign);
  parts_.membership->Holds({.id = id, .epoch = assign.epoch});
  return absl::OkStatus();
}

absl::Status PrefillOrders::ExtendPlan(Request& request, const AssignRequest& assign) {
  if (request.IsEnding()) return absl::FailedPreconditionError("epoch: this plan has ended");
  if (request.IsPlain()) {
    return absl::InvalidArgumentError("members: the plan has one instance and cannot get more");
  }
  if (absl::Status status = parts_.sp_plans->Extend(assign); !status.ok()) return status;
  request.all_have_plan = false;
  const SpPlan& plan = *parts_.sp_plans->Find(request.id());
  request.blocks_wanted = plan.BlocksWanted(parts_.requests->blocks().total);
  if (request.phase != Phase::kQueued && !parts_.requests->Extend(request, plan.slots())) {
    absl::Status status = absl::UnavailableError("no KV blocks are free for a later chunk");
    parts_.ends->End(request, status);
    return status;
  }
  if (request.phase == Phase::kComputing) parts_.transfers->OpenHandoffOf(request);
  if (assign.placed.has_value()) parts_.transfers->Place(request, *assign.placed);
  return absl::OkStatus();
}

absl::Status PrefillOrders::Accept(const AssignRequest& request) const {
  const RequestSpec& spec = *request.spec;
  const Request* known = parts_.requests->Find(spec.id);
  if (known != nullptr && known->epoch > request.epoch) {
    return absl::FailedPreconditionError("epoch: stale");
  }
  if (parts_.ends->tombstones().Covers(spec.id, request.epoch)) {
    return absl::FailedPreconditionError("epoch: this plan has ended");
  }
  if (!parts_.steps->engine().ok()) return absl::UnavailableError("the engine has failed");
  if (parts_.membership->draining()) return absl::UnavailableError("the instance is draining");
  if (spec.prompt.empty()) return absl::InvalidArgumentError("prompt: empty");
  const int64_t prompt_tokens = PromptTokens(spec);
  const HandoffShape& shape = parts_.membership->identity().shape;
  const int64_t total_blocks = parts_.requests->blocks().total;
  if (request.members.empty() && BlocksOf(shape, prompt_tokens) > total_blocks) {
    return absl::InvalidArgumentError(absl::StrCat("prompt: ", prompt_tokens,
                                                   " tokens exceed this instance's limit of ",
                                                   total_blocks * TokensPerBlock(shape)));
  }
  if (config_.max_sequence_tokens > 0 &&
      prompt_tokens + spec.max_tokens > config_.max_sequence_tokens) {
    return absl::InvalidArgumentError(
        absl::StrCat("prompt + max_tokens: ", prompt_tokens + spec.max_tokens,
                     " tokens exceed this model's limit of ", config_.max_sequence_tokens));
  }
  if (static_cast<int64_t>(parts_.requests->all().size()) >= config_.max_requests) {
    return absl::ResourceExhaustedError("the prefill queue is full");
  }
  return absl::OkStatus();
}

void PrefillOrders::On(const StartCalled& event) {
  const StartRequest& start = event.request;
  if (Request* request = parts_.requests->FindLive(start.id, start.epoch); request != nullptr) {
    request->all_have_plan = true;
    parts_.transfers->Place(*request, start.placed);
  } else {
    successors_.Start(start);
  }
}

void PrefillOrders::On(const CancelCalled& event) {
  if (!parts_.membership->CheckEpoch(event.request.epoch).ok()) return;
  CancelUpTo(event.request.id, event.request.epoch, event.request.why);
}

void PrefillOrders::CancelUpTo(RequestId id, Epoch epoch, const std::string& why) {
  Request* request = parts_.requests->Find(id);
  if (request != nullptr && request->epoch <= epoch)
    parts_.ends->End(*request, absl::CancelledError(why));
  if (const std::optional<Epoch> waits = successors_.EpochOf(id); waits && *waits <= epoch) {
    EndSuccessor(id, absl::CancelledError(why));
  }
  parts_.ends->Bury(id, epoch);
}

// After a new registration, the orchestrator is a new one or had given this instance up. Plans that
// name the old registration and still need a message from the orchestrator would wait forever; so
// would the members of a plan that did not reach all of them.
void PrefillOrders::EndOrphans() {
  const auto status =
      absl::UnavailableError("the orchestrator that issued this plan is gone or has dropped it");
  parts_.ends->EndThose(
      [this](const Request& request) {
        const SpPlan* plan = parts_.sp_plans->Find(request.id());
        if (plan == nullptr || plan->self() == parts_.membership->instance()) return false;
        const bool computed = request.phase == Phase::kComputed;
        return !plan->Whole() || !(request.all_have_plan || computed);
      },
      status);
  std::vector<RequestId> orphans;
  for (const auto& [id, plan] : successors_.all()) {
    const absl::StatusOr<InstanceId> self = parts_.sp_plans->SelfIn(plan.assigns.front());
    if (self.ok() && *self != parts_.membership->instance()) orphans.push_back(id);
  }
  for (const RequestId id : orphans) EndSuccessor(id, status);
}

// The orchestrator plans anew what has not begun here.
void PrefillOrders::HandBack() {
  parts_.ends->EndThose([](const Request& request) { return request.phase == Phase::kQueued; },
                        PrefillEnds::HandedBack());
  EndSuccessors(PrefillEnds::HandedBack());
}

void PrefillOrders::TakeSuccessors() {
  for (const RequestId id : parts_.ends->TakeLeft()) {
    if (parts_.requests->Find(id) != nullptr) continue;
    const Successors::Plan plan = successors_.Take(id);
    for (const AssignRequest& assign : plan.assigns) {
      const absl::Status status = Assign(assign);
      if (status.ok()) continue;
      parts_.ends->Bury(id, assign.epoch);
      parts_.ends->EndWaiting(id, assign.epoch, status);
      break;
    }
    if (Request* request = parts_.requests->Find(id)) request->all_have_plan = plan.all_have_it;
  }
}

void PrefillOrders::EndSuccessor(RequestId id, const absl::Status& status) {
  const std::vector<AssignRequest> assigns = successors_.Take(id).assigns;
  if (!assigns.empty()) parts_.ends->EndWaiting(id, assigns.front().epoch, status);
}

void PrefillOrders::EndSuccessors(const absl::Status& status) {
  while (!successors_.empty()) EndSuccessor(successors_.all().begin()->first, status);
}

absl::Status PrefillOrders::CheckInvariants() const {
  const auto violated = [](RequestId id, const char* what) {
    return absl::InternalError(absl::StrCat("PrefillCore 7: ", ToString(id), " ", what));
  };
  for (const auto& [id, request] : parts_.requests->all()) {
    const SpPlan* plan = parts_.sp_plans->Find(id);
    if (request.IsPlain() != (plan == nullptr)) {
      return violated(id, "has no plan, or one that it should not have");
    }
    const bool holds = request.blocks != nullptr && !request.IsEnding();
    if (plan != nullptr && holds && plan->slots() > static_cast<int64_t>(request.blocks->size())) {
      return violated(id, "has more slots than blocks");
    }
  }
  return successors_.CheckInvariants();
}

}  // namespace skein::scheduler
