#include "services/orchestrator/group_page.h"

#include "nlohmann/json.hpp"

namespace skein::services {
namespace {

using Json = nlohmann::ordered_json;

Json IdsJson(const std::vector<scheduler::InstanceId>& instances) {
  Json ids = Json::array();
  for (const scheduler::InstanceId instance : instances) ids.push_back(instance.value);
  return ids;
}

Json FormationJson(const scheduler::FormationStatus& formation) {
  Json json;
  json["name"] = formation.name;
  json["instances"] = IdsJson(formation.members);
  json["stage"] = formation.stage;
  json["epoch"] = formation.epoch;
  json["pinned"] = formation.pinned;
  json["for_s"] = static_cast<double>(formation.for_us) * 1e-6;
  json["why"] = formation.why;
  return json;
}

}  // namespace

std::string GroupsJson(const std::vector<scheduler::GroupStatus>& groups) {
  Json json;
  json["groups"] = Json::array();
  for (const scheduler::GroupStatus& group : groups) {
    Json one;
    one["name"] = group.name;
    one["role"] = group.role == scheduler::Role::kPrefill ? "prefill" : "decode";
    one["model"] = group.model;
    one["node"] = group.node.empty() ? Json() : Json(group.node);
    one["instances"] = IdsJson(group.members);
    one["formations"] = Json::array();
    for (const scheduler::FormationStatus& formation : group.formations) {
      one["formations"].push_back(FormationJson(formation));
    }
    one["for_s"] = static_cast<double>(group.for_us) * 1e-6;
    one["why"] = group.why;
    one["rejected"] = Json::array();
    for (const auto& [formation, why] : group.rejected) {
      one["rejected"].push_back({{"formation", formation}, {"why", why}});
    }
    one["generation"] = group.generation;
    one["ready"] = group.ready;
    json["groups"].push_back(std::move(one));
  }
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace skein::services
