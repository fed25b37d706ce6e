#include "services/orchestrator/model_list.h"

#include <cstdint>
#include <map>
#include <string>
#include <utility>

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

}  // namespace skein::services
