#include "services/orchestrator/group_page.h"

#include "nlohmann/json.hpp"

namespace skein::services {

std::string GroupsJson(const std::vector<scheduler::GroupStatus>& groups) {
  using Json = nlohmann::ordered_json;
  Json json;
  json["groups"] = Json::array();
  for (const scheduler::GroupStatus& group : groups) {
    Json one;
    one["role"] = group.role == scheduler::Role::kPrefill ? "prefill" : "decode";
    one["model"] = group.model;
    one["node"] = group.node.empty() ? Json() : Json(group.node);
    one["instances"] = Json::array();
    for (const scheduler::InstanceId member : group.members) {
      one["instances"].push_back(member.value);
    }
    one["formation"] = group.formation;
    one["for_s"] = static_cast<double>(group.for_us) * 1e-6;
    one["why"] = group.why;
    one["generation"] = group.generation;
    one["ready"] = group.ready;
    json["groups"].push_back(std::move(one));
  }
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace skein::services
