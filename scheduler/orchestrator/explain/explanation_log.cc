#include "scheduler/orchestrator/explain/explanation_log.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "scheduler/orchestrator/explain/slower_path.h"

namespace skein::scheduler::orchestrator {
namespace {

constexpr auto kStateTexts = std::to_array<std::string_view>(
    {"waiting for its instances",  // kQueued, and so on
     "being assigned", "queued at its prefill instances", "waiting for decode room",
     "opening its transfer to the decode instance", "prefilling", "being replanned",
     "parked: no prefill instance takes it now",
     "waiting for the prompt of its answer's first choice",
     "waiting for a bound group: no instance alone holds it"});
static_assert(kStateTexts.size() == kStates);

}  // namespace

Explanation ExplanationLog::ExplanationOf(const Request& request, TimeUs now) const {
  Request copy = request;
  NoteTimes(&copy);
  for (PlanExplanation& plan : copy.explanation.plans) TellWhy(&plan);
  copy.explanation.age_us = now - request.submitted_us;
  copy.explanation.state = kStateTexts[static_cast<size_t>(request.state)];
  const bool decoding = request.state == State::kPlaced && request.explanation.prefilled_us >= 0;
  if (decoding) copy.explanation.state = "decoding";
  const bool grouped = request.in_group && request.decode != InstanceId{};
  if (grouped) copy.explanation.state = "computed by its bound group";
  return std::move(copy.explanation);
}

void ExplanationLog::Begin(const Request& request) {
  alive_.Add(request.explanation, request.number);
}

void ExplanationLog::Note(Degraded kind, Request* request) { Count(kind, &request->explanation); }

void ExplanationLog::NoteMoves(uint32_t moves, Request* request) {
  if (moves == 0) return;
  ++degraded_[static_cast<size_t>(Degraded::kMoved)];
  request->explanation.degraded[static_cast<size_t>(Degraded::kMoved)] = moves;
}

void ExplanationLog::NotePreemptions(uint32_t so_far, Request* request) {
  if (request->explanation.plans.empty()) return;
  uint32_t& told = request->explanation.plans.back().preemptions;
  if (so_far <= told) return;
  const uint32_t more = so_far - std::exchange(told, so_far);
  degraded_[static_cast<size_t>(Degraded::kPreempted)] += more;
  request->explanation.degraded[static_cast<size_t>(Degraded::kPreempted)] += more;
}

void ExplanationLog::NoteFailed(Request* request) {
  ++failed_;
  request->explanation.failed = true;
}

void ExplanationLog::NotePlaced(Request* request) {
  PlanExplanation& plan = request->explanation.plans.back();
  plan.switches_from = switches_.NextOf(plan.decode);
}

void ExplanationLog::NoteTimes(Request* request) const {
  if (request->explanation.plans.empty()) return;
  PlanExplanation& plan = request->explanation.plans.back();
  const TimeUs decided_us = request->submitted_us + plan.decided_us;
  const size_t chunks = std::min(plan.chunks.size(), request->chunks.size());
  for (size_t k = 0; k < chunks; ++k) {
    const Chunk& chunk = request->chunks[k];
    const auto since = [&](TimeUs at) {
      return at < 0 ? -1 : std::max<TimeUs>(0, at - decided_us);
    };
    plan.chunks[k].started_us = since(chunk.started_us);
    plan.chunks[k].ended_us = since(chunk.ended_us);
  }
  if (plan.lost.empty()) switches_.Tell(decided_us, &plan);
}

Explanation ExplanationLog::AtEnd(const Request& request, const std::string& why,
                                  TimeUs now) const {
  Explanation explanation = request.explanation;
  explanation.state = why;
  explanation.ended_us = now - request.submitted_us;
  if (request.router_end.has_value()) {
    scheduler::TakeRouterEnd(*request.router_end, &explanation);
  }
  for (PlanExplanation& plan : explanation.plans) TellMeanings(&plan);
  return explanation;
}

void ExplanationLog::End(Request* request, const std::string& why, TimeUs now,
                         AwaitedReports reports) {
  alive_.Remove(request->explanation, request->number);
  request->explanation.state = why;
  request->explanation.ended_us = now - request->submitted_us;
  if (request->router_end.has_value() &&
      scheduler::TakeRouterEnd(*request->router_end, &request->explanation)) {
    ++failed_;
  }
  ended_.Add(now, std::move(request->explanation), std::move(reports));
}

template <class Told>
bool ExplanationLog::IsNew(Epoch epoch, InstanceId from, std::vector<Told> PlanExplanation::*list,
                           const Explanation* explanation) {
  if (explanation == nullptr) return true;
  if (explanation->plans.empty() || explanation->plans.back().epoch != epoch) return false;
  const std::vector<Told>& told = explanation->plans.back().*list;
  return std::none_of(told.begin(), told.end(),
                      [from](const Told& one) { return one.prefill == from; });
}

void ExplanationLog::Count(Degraded kind, Explanation* explanation) {
  ++degraded_[static_cast<size_t>(kind)];
  if (explanation != nullptr) ++explanation->degraded[static_cast<size_t>(kind)];
}

void ExplanationLog::NoteHandoff(Epoch epoch, HandoffExplanation handoff,
                                 Explanation* explanation) {
  if (!IsNew(epoch, handoff.prefill, &PlanExplanation::handoffs, explanation)) return;
  for (const Degraded kind : SlowerBy(handoff.path)) Count(kind, explanation);
  const bool retried = handoff.path.retries > 0 || handoff.path.commit_unanswered;
  if (retried) Count(Degraded::kHandoffRetried, explanation);
  if (explanation != nullptr) explanation->plans.back().handoffs.push_back(std::move(handoff));
}

void ExplanationLog::NoteRing(Epoch epoch, RingExplanation ring, Explanation* explanation) {
  if (!IsNew(epoch, ring.prefill, &PlanExplanation::rings, explanation)) return;
  if (ring.path.through_host) Count(Degraded::kRingHostMemory, explanation);
  if (explanation != nullptr) explanation->plans.back().rings.push_back(std::move(ring));
}

void ExplanationLog::TakeEnded(const EndedRequest& ended, InstanceId instance) {
  ended_.TakeEnded(ended, instance);
}

void ExplanationLog::TakeRouterEnd(const RouterEnd& end) {
  if (ended_.TakeRouterEnd(end)) ++failed_;
}

absl::Status ExplanationLog::CheckInvariants() const {
  absl::Status found = ended_.CheckInvariants();
  if (found.ok()) found = switches_.CheckInvariants();
  return found;
}

std::vector<Explanation> ExplanationLog::Find(const RequestTable& requests, const std::string& name,
                                              TimeUs now) const {
  constexpr size_t kMost = 16;
  std::vector<Explanation> found;
  alive_.ForEachLatest(name, [&](uint64_t number) {
    const Request& request = requests.Numbered(number);
    if (request.explanation.Answers(name)) found.push_back(ExplanationOf(request, now));
    return found.size() < kMost;
  });
  ended_.Find(name, now, kMost, &found);
  return found;
}

// Only what is shown is copied.
std::vector<Explanation> ExplanationLog::List(const RequestTable& requests, ListOrder order,
                                              size_t limit, TimeUs now) const {
  struct Row {
    TimeUs key_us = 0;  // the greatest come first
    const Request* alive = nullptr;
    const Explanation* ended = nullptr;
    TimeUs submitted_us = 0;
  };
  const bool recent = order == ListOrder::kRecent;
  std::vector<Row> rows;
  const auto add = [&](const Request& request) {
    const TimeUs at_us = request.submitted_us;
    if (rows.size() < limit) rows.push_back({recent ? at_us : now - at_us, &request, {}, at_us});
    return rows.size() < limit;
  };
  recent ? requests.ForEachLatest(add) : requests.ForEachOldest(add);
  ended_.ForEach([&](TimeUs submitted_us, const Explanation& one) {
    rows.push_back({recent ? submitted_us : one.ended_us, nullptr, &one, submitted_us});
  });
  std::stable_sort(rows.begin(), rows.end(),
                   [](const Row& a, const Row& b) { return a.key_us > b.key_us; });
  std::vector<Explanation> list;
  for (const Row& row : rows) {
    if (list.size() == limit) break;
    list.push_back(row.alive != nullptr ? ExplanationOf(*row.alive, now) : *row.ended);
    list.back().age_us = now - row.submitted_us;
    list.back().plans.clear();
  }
  return list;
}

}  // namespace skein::scheduler::orchestrator
