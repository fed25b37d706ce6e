#include "services/orchestrator/model_list.h"

#include <cstdint>
#include <map>
#include <string>
#include <utility>

namespace skein::services {

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
    if (instance.identity.role == scheduler::Role::kPrefill) {
      model.set_prefill_instances(model.prefill_instances() + 1);
    } else {
      model.set_decode_instances(model.decode_instances() + 1);
    }
  }
  for (auto& [name, model] : models) *out->add_models() = std::move(model);
}

}  // namespace skein::services
