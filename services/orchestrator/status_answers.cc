#include "services/orchestrator/status_answers.h"

#include <cstdint>
#include <string>

#include "services/codec/codec.h"

namespace skein::services {

namespace {

v1::ModelStatus ModelOf(const std::string& name, const scheduler::ModelTotals& totals) {
  v1::ModelStatus model;
  model.set_model(name);
  model.set_model_hash(totals.hash);
  model.set_max_positions(static_cast<uint64_t>(totals.max_positions));
  model.set_prefill_instances(static_cast<uint64_t>(totals.prefill.instances));
  model.set_decode_instances(static_cast<uint64_t>(totals.decode.instances));
  model.set_running(
      static_cast<uint64_t>(totals.prefill.running_requests + totals.decode.running_requests));
  // What waits at a decode instance runs in a prefill instance meanwhile: it is not counted twice.
  model.set_waiting(static_cast<uint64_t>(totals.prefill.queued_requests + totals.waiting_here));
  model.set_kv_block_tokens(static_cast<uint32_t>(totals.block_tokens));
  model.set_kv_blocks(static_cast<uint64_t>(totals.decode.total_blocks));
  model.set_kv_blocks_held(static_cast<uint64_t>(totals.decode.held_blocks));
  return model;
}

void FillHealth(const scheduler::OrchestratorSnapshot& snapshot, v1::StatusResponse* out) {
  for (const auto& [name, totals] : snapshot.models) {
    v1::ModelHealth* model = out->add_models();
    model->set_model(name);
    model->set_prefill_serving(static_cast<uint32_t>(totals.prefill_placeable));
    model->set_decode_serving(static_cast<uint32_t>(totals.decode_placeable));
  }
}

}  // namespace

void FillModels(const scheduler::OrchestratorSnapshot& totals, v1::ListModelsResponse* out) {
  for (const auto& [name, model] : totals.models) {
    if (model.prefill.instances + model.decode.instances == 0) continue;
    *out->add_models() = ModelOf(name, model);
  }
}

void FillStatus(const scheduler::OrchestratorSnapshot& snapshot, const absl::Status& invariants,
                scheduler::TimeUs now, v1::StatusResponse* out) {
  for (const scheduler::InstanceStatus& instance : snapshot.instances) {
    *out->add_instances() = ToProto(instance);
  }
  for (const scheduler::RouterStatus& router : snapshot.routers) {
    *out->add_routers() = ToProto(router);
  }
  for (const scheduler::Gone& gone : snapshot.gone) *out->add_gone() = ToProto(gone, now);
  for (const scheduler::RefusedPeer& peer : snapshot.refused_peers) {
    *out->add_refused_peers() = ToProto(peer, now);
  }
  FillHealth(snapshot, out);
  out->set_epoch(snapshot.last_epoch.value);
  out->set_generation(snapshot.generation);
  out->set_assigning(static_cast<uint64_t>(snapshot.planning + snapshot.assigning));
  out->set_parked(static_cast<uint64_t>(snapshot.parked));
  out->set_refused(snapshot.refused);
  out->set_assigned(static_cast<uint64_t>(snapshot.assigned));
  out->set_waiting_for_decode(static_cast<uint64_t>(snapshot.waiting));
  out->set_reserving(static_cast<uint64_t>(snapshot.reserving));
  out->set_sharing(static_cast<uint64_t>(snapshot.sharing));
  out->set_placed(static_cast<uint64_t>(snapshot.placed));
  out->set_submitted(snapshot.submitted);
  out->set_failed(snapshot.failed);
  out->set_instances_lost(snapshot.instances_lost);
  out->set_invariants(invariants.ok() ? "ok" : std::string(invariants.message()));
}

}  // namespace skein::services
