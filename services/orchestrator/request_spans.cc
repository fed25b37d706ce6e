#include "services/orchestrator/request_spans.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "services/tracing/part_span.h"

namespace skein::services {
namespace {

using scheduler::ChunkExplanation;
using scheduler::Explanation;
using scheduler::PlanExplanation;
using scheduler::SwitchExplanation;
using scheduler::TimeUs;

constexpr size_t kAlternativesMax = 16;  // that are named of one plan

int64_t MicrosOf(double seconds) { return static_cast<int64_t>(seconds * 1e6); }

std::string Names(const std::vector<scheduler::InstanceId>& instances) {
  return absl::StrJoin(instances, ",", [](std::string* out, scheduler::InstanceId id) {
    absl::StrAppend(out, id.value);
  });
}

std::string FormationName(int32_t size, bool shared) {
  if (size <= 1) return "independent";
  return absl::StrCat(shared ? "shared(" : "bound(", size, ")");
}

// Of one request.
class Recorder {
 public:
  Recorder(const scheduler::TracedEnded& ended, const SpanContext& parent, Tracer* tracer)
      : explanation_(*ended.explanation),
        submitted_us_(ended.submitted_us),
        tracer_(tracer),
        whole_(BeginSpan(*tracer, parent, "schedule", submitted_us_)) {}

  void Record() {
    whole_.attributes = Common();
    auto& attributes = whole_.attributes;
    attributes.emplace_back("skein.model", explanation_.model);
    attributes.emplace_back("skein.policy", explanation_.policy);
    attributes.emplace_back("skein.prompt_tokens", explanation_.prompt_tokens);
    attributes.emplace_back("skein.plans", static_cast<int64_t>(explanation_.plans.size()));
    attributes.emplace_back("skein.end", explanation_.state);
    if (std::vector<std::string> degraded = Degraded(); !degraded.empty()) {
      attributes.emplace_back("skein.degraded", std::move(degraded));
    }
    TimeUs since_us = 0;
    for (const PlanExplanation& plan : explanation_.plans) {
      RecordPlan(plan, since_us);
      since_us = plan.lost_us >= 0 ? plan.lost_us : plan.decided_us;
    }
    if (explanation_.failed) NoteStatus(absl::UnknownError(explanation_.state), &whole_);
    EndSpan(submitted_us_ + explanation_.ended_us, std::move(whole_), tracer_);
  }

 private:
  std::vector<SpanAttribute> Common() const {
    return {{"skein.request_id", ToString(explanation_.id)}, {"skein.role", "orchestrator"}};
  }

  std::vector<std::string> Degraded() const {
    std::vector<std::string> names;
    for (size_t i = 0; i < explanation_.degraded.size(); ++i) {
      if (explanation_.degraded[i] == 0) continue;
      names.push_back(
          absl::StrCat(NameOf(static_cast<scheduler::Degraded>(i)), " ", explanation_.degraded[i]));
    }
    return names;
  }

  void RecordPlan(const PlanExplanation& plan, TimeUs since_us) {
    RecordDecision(plan, since_us);
    RecordPlacement(plan);
    for (size_t k = 0; k < plan.chunks.size(); ++k) NoteChunk(plan, k);
    for (const SwitchExplanation& one : plan.switches) NoteSwitch(plan, one);
    if (plan.lost_us < 0) return;
    Event("plan given up", plan.lost_us,
          {{"skein.epoch", Number(plan.epoch)}, {"skein.reason", plan.lost}});
  }

  void RecordDecision(const PlanExplanation& explained, TimeUs since_us) {
    PlanExplanation plan = explained;
    TellWhy(&plan);
    Span span = Child("plan", since_us);
    auto& attributes = span.attributes;
    attributes.emplace_back("skein.epoch", Number(plan.epoch));
    attributes.emplace_back("skein.policy", explanation_.policy);
    attributes.emplace_back("skein.decided_because", plan.how);
    attributes.emplace_back("skein.candidates", static_cast<int64_t>(plan.queue_s.size()));
    attributes.emplace_back("skein.chunks", static_cast<int64_t>(plan.chunks.size()));
    if (!plan.chunks.empty()) {
      attributes.emplace_back("skein.instances", Names(plan.chunks.back().instances));
    }
    if (plan.ttft_s > 0) attributes.emplace_back("skein.estimated_us", MicrosOf(plan.ttft_s));
    std::vector<std::string> alternatives;
    for (const scheduler::AlternativeExplanation& one : plan.alternatives) {
      if (alternatives.size() == kAlternativesMax) break;
      alternatives.push_back(
          absl::StrFormat("sp %d, ttft %.6f s: %s", one.sp, one.ttft_s, one.why));
    }
    if (!alternatives.empty()) {
      attributes.emplace_back("skein.alternatives", std::move(alternatives));
    }
    EndSpan(submitted_us_ + plan.decided_us, std::move(span), tracer_);
  }

  void RecordPlacement(const PlanExplanation& plan) {
    Span span = Child("placement", plan.decided_us);
    auto& attributes = span.attributes;
    attributes.emplace_back("skein.epoch", Number(plan.epoch));
    if (plan.refusals > 0) {
      attributes.emplace_back("skein.refusals", static_cast<int64_t>(plan.refusals));
    }
    if (plan.placed_us >= 0) {
      attributes.emplace_back("skein.decode", static_cast<int64_t>(plan.decode.value));
      attributes.emplace_back("skein.formation", FormationName(plan.formation, false));
      if (plan.formation_epoch != 0) {
        attributes.emplace_back("skein.formation_epoch",
                                static_cast<int64_t>(plan.formation_epoch));
      }
    }
    const TimeUs end_us = plan.placed_us >= 0 ? plan.placed_us
                          : plan.lost_us >= 0 ? plan.lost_us
                                              : explanation_.ended_us;
    if (plan.waiting_us >= 0) {
      attributes.emplace_back("skein.waited_us", std::max<TimeUs>(0, end_us - plan.waiting_us));
    }
    if (plan.placed_us < 0) {
      NoteStatus(absl::UnavailableError(plan.lost.empty() ? "it ended before" : plan.lost), &span);
    }
    EndSpan(submitted_us_ + end_us, std::move(span), tracer_);
  }

  void NoteChunk(const PlanExplanation& plan, size_t k) {
    const ChunkExplanation& chunk = plan.chunks[k];
    const auto number = static_cast<int64_t>(k);
    if (chunk.started_us >= 0) {
      Event("chunk began", plan.decided_us + chunk.started_us,
            {{"skein.chunk", number},
             {"skein.tokens", chunk.tokens},
             {"skein.instances", Names(chunk.instances)},
             {"skein.tp", chunk.tp},
             {"skein.estimated_us", MicrosOf(chunk.estimated_start_s)}});
    }
    if (chunk.ended_us >= 0) {
      Event("chunk ended", plan.decided_us + chunk.ended_us,
            {{"skein.chunk", number}, {"skein.estimated_us", MicrosOf(chunk.estimated_end_s)}});
    }
  }

  void NoteSwitch(const PlanExplanation& plan, const SwitchExplanation& one) {
    std::vector<SpanAttribute> attributes = {
        {"skein.formation_epoch", static_cast<int64_t>(one.epoch)},
        {"skein.from", FormationName(one.from, one.shared.has_value())},
        {"skein.to", FormationName(one.to, one.shared.has_value())},
        {"skein.ordered_because", one.why},
        {"skein.cause", NameOf(one.cause)},
        {"skein.meaning", NameOf(one.meaning)}};
    if (one.ended_us.has_value()) {
      attributes.emplace_back("skein.took_us", *one.ended_us - one.began_us);
    }
    if (!one.reason.empty()) attributes.emplace_back("skein.reason", one.reason);
    Event("formation switch", plan.decided_us + one.began_us, std::move(attributes));
  }

  static int64_t Number(Epoch epoch) { return static_cast<int64_t>(epoch.value); }
  Span Child(std::string name, TimeUs at_us) const {
    Span span = BeginSpan(*tracer_, whole_.context, std::move(name), submitted_us_ + at_us);
    span.attributes = Common();
    return span;
  }
  void Event(std::string name, TimeUs at_us, std::vector<SpanAttribute> attributes) {
    AddEvent(*tracer_, std::move(name), submitted_us_ + at_us, std::move(attributes), &whole_);
  }

  const Explanation& explanation_;
  const TimeUs submitted_us_;
  Tracer* const tracer_;
  Span whole_;
};

}  // namespace

void RecordRequestSpans(const scheduler::TracedEnded& ended, Tracer* tracer) {
  const auto parent = ParentOf(tracer, ended.spec->traceparent);
  if (parent.has_value()) Recorder(ended, *parent, tracer).Record();
}

}  // namespace skein::services
