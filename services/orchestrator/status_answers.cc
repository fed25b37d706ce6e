#include "services/orchestrator/status_answers.h"

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "services/codec/codec.h"

namespace skein::services {

namespace {

// What waits at a decode instance runs in a prefill instance meanwhile: it is not counted twice.
void AddLoad(const scheduler::InstanceStatus& instance, v1::ModelStatus* model) {
  const scheduler::WorkerLoad& load = instance.load;
  model->set_running(model->running() + static_cast<uint64_t>(load.running_requests));
  if (instance.identity.role == scheduler::Role::kPrefill) {
    model->set_prefill_instances(model->prefill_instances() + 1);
    model->set_waiting(model->waiting() + static_cast<uint64_t>(load.queued_requests));
    return;
  }
  model->set_decode_instances(model->decode_instances() + 1);
  model->set_kv_block_tokens(static_cast<uint32_t>(instance.identity.shape.block_tokens));
  model->set_kv_blocks(model->kv_blocks() + static_cast<uint64_t>(load.total_blocks));
  model->set_kv_blocks_held(model->kv_blocks_held() + static_cast<uint64_t>(load.held_blocks));
}

void FillHealth(const scheduler::OrchestratorSnapshot& snapshot, v1::StatusResponse* out) {
  for (const std::string& name : snapshot.models) {
    v1::ModelHealth* model = out->add_models();
    model->set_model(name);
    for (const scheduler::InstanceStatus& instance : snapshot.instances) {
      if (instance.identity.model != name || !instance.placeable) continue;
      if (instance.identity.role == scheduler::Role::kPrefill) {
        model->set_prefill_serving(model->prefill_serving() + 1);
      } else {
        model->set_decode_serving(model->decode_serving() + 1);
      }
    }
  }
}

}  // namespace

void FillModels(const scheduler::OrchestratorSnapshot& snapshot, v1::ListModelsResponse* out) {
  std::map<std::string, v1::ModelStatus> models;
  for (const scheduler::InstanceStatus& instance : snapshot.instances) {
    if (instance.load.draining) continue;
    v1::ModelStatus& model = models[instance.identity.model];
    model.set_model(instance.identity.model);
    model.set_model_hash(instance.identity.shape.model_hash);
    const auto positions = static_cast<uint64_t>(instance.identity.max_positions);
    if (model.max_positions() == 0 || positions < model.max_positions()) {
      model.set_max_positions(positions);
    }
    AddLoad(instance, &model);
  }
  for (auto& [name, model] : models) {
    const auto here = snapshot.waiting_here.find(name);
    if (here != snapshot.waiting_here.end()) {
      model.set_waiting(model.waiting() + static_cast<uint64_t>(here->second));
    }
    *out->add_models() = std::move(model);
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
