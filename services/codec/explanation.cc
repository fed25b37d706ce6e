#include "services/codec/codec.h"
#include "services/codec/internal.h"

namespace skein::services {
namespace {

using scheduler::TimeUs;

double Seconds(TimeUs us) { return static_cast<double>(us) * 1e-6; }

void SwitchToProto(const scheduler::SwitchExplanation& one, v1::PlanExplanation::Switch* out) {
  out->set_start_s(Seconds(one.began_us));
  out->set_formation_epoch(one.epoch);
  out->set_from_instances(static_cast<uint32_t>(one.from));
  out->set_to_instances(static_cast<uint32_t>(one.to));
  if (one.shared.has_value()) out->set_shared(ToProto(*one.shared));
  out->set_cause(NameOf(one.cause));
  out->set_why(one.why);
  out->set_own(std::string(ToString(one.own)));
  out->set_meaning(NameOf(one.meaning));
  if (!one.ended_us.has_value()) return;
  out->set_end_s(Seconds(*one.ended_us));
  out->set_outcome(std::string(NameOf(one.outcome)));
  out->set_reason(one.reason);
}

v1::PlanExplanation PlanToProto(const scheduler::PlanExplanation& plan) {
  v1::PlanExplanation out;
  out.set_epoch(plan.epoch.value);
  out.set_decided_s(Seconds(plan.decided_us));
  out.set_how(plan.how);
  out.set_improvement_rate(plan.improvement_rate);
  out.set_ttft_s(plan.ttft_s);
  for (const auto& [instance, queue_s] : plan.queue_s) {
    v1::PlanExplanation::Queue* queue = out.add_queue();
    queue->set_instance(instance.value);
    queue->set_queue_s(queue_s);
  }
  for (const scheduler::ChunkExplanation& chunk : plan.chunks) {
    v1::PlanExplanation::Chunk* added = out.add_chunks();
    added->set_tokens(static_cast<uint64_t>(chunk.tokens));
    for (const scheduler::InstanceId id : chunk.instances) added->add_instances(id.value);
    added->set_tp(static_cast<uint32_t>(chunk.tp));
    added->set_estimated_start_s(chunk.estimated_start_s);
    added->set_estimated_end_s(chunk.estimated_end_s);
    if (chunk.started_us >= 0) added->set_start_s(Seconds(chunk.started_us));
    if (chunk.ended_us >= 0) added->set_end_s(Seconds(chunk.ended_us));
  }
  for (const scheduler::AlternativeExplanation& one : plan.alternatives) {
    v1::PlanExplanation::Alternative* added = out.add_alternatives();
    added->set_sp(static_cast<uint32_t>(one.sp));
    added->set_start_s(one.start_s);
    added->set_ttft_s(one.ttft_s);
    added->set_why(one.why);
  }
  out.set_lost(plan.lost);
  out.set_decode_instance(plan.decode.value);
  if (plan.RunsInGroup()) {
    out.set_formation_instances(static_cast<uint32_t>(plan.formation));
    out.set_formation_epoch(plan.formation_epoch);
  }
  for (const scheduler::HandoffExplanation& one : plan.handoffs) {
    v1::PlanExplanation::Handoff* added = out.add_handoffs();
    added->set_prefill_instance(one.prefill.value);
    *added->mutable_path() = ToProto(one.path);
    added->set_slower(one.slower);
  }
  for (const scheduler::RingExplanation& one : plan.rings) {
    v1::PlanExplanation::Ring* added = out.add_rings();
    added->set_prefill_instance(one.prefill.value);
    *added->mutable_path() = ToProto(one.path);
  }
  for (const scheduler::SwitchExplanation& one : plan.switches) {
    SwitchToProto(one, out.add_switches());
  }
  out.set_switches_left_out(plan.switches_left_out);
  return out;
}

}  // namespace

v1::HandoffPath ToProto(const scheduler::HandoffPath& path) {
  v1::HandoffPath out;
  out.set_path(path.path);
  out.set_transport(path.transport);
  out.set_staging_buffer(path.staging_buffer);
  out.set_retries(path.retries);
  out.set_commit_unanswered(path.commit_unanswered);
  return out;
}

v1::RingPath ToProto(const scheduler::RingPath& path) {
  v1::RingPath out;
  out.set_through_host(path.through_host);
  out.set_why(path.why);
  return out;
}

v1::RequestExplanation ToProto(const scheduler::Explanation& explanation) {
  v1::RequestExplanation out;
  *out.mutable_id() = ToProto(explanation.id);
  for (const std::string& name : explanation.names) out.add_names(name);
  out.set_model(explanation.model);
  out.set_prompt_tokens(static_cast<uint64_t>(explanation.prompt_tokens));
  out.set_policy(explanation.policy);
  out.set_state(explanation.state);
  out.set_age_s(Seconds(explanation.age_us));
  if (explanation.placed_us >= 0) out.set_placed_s(Seconds(explanation.placed_us));
  if (explanation.prefilled_us >= 0) out.set_prefilled_s(Seconds(explanation.prefilled_us));
  if (explanation.ended_us >= 0) out.set_ended_s(Seconds(explanation.ended_us));
  if (explanation.first_token_us >= 0) out.set_first_token_s(Seconds(explanation.first_token_us));
  if (explanation.output_tokens >= 0) {
    out.set_output_tokens(static_cast<uint64_t>(explanation.output_tokens));
  }
  for (size_t kind = 0; kind < scheduler::kDegradedKinds; ++kind) {
    if (explanation.degraded[kind] == 0) continue;
    v1::Degradation* added = out.add_degraded();
    added->set_reason(NameOf(static_cast<scheduler::Degraded>(kind)));
    added->set_times(explanation.degraded[kind]);
  }
  for (const scheduler::PlanExplanation& plan : explanation.plans) {
    *out.add_plans() = PlanToProto(plan);
  }
  return out;
}

}  // namespace skein::services
