#include "services/console/console_orders.h"

#include <cstdint>
#include <initializer_list>
#include <map>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"

namespace skein::services {
namespace {

using Json = nlohmann::json;
using Formation = v1::ChangeFormationRequest;

absl::Status Bad(const std::string& what) { return absl::InvalidArgumentError(what); }

absl::Status CheckNames(const Json& body, std::initializer_list<const char*> known) {
  for (const auto& [name, value] : body.items()) {
    bool found = false;
    for (const char* one : known) found = found || name == one;
    if (!found) return Bad(absl::StrCat("'", name, "': unknown, or not for this order"));
  }
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> Number(const Json& body, const char* name, uint64_t absent) {
  const auto it = body.find(name);
  if (it == body.end()) return absent;
  if (!it->is_number_unsigned()) return Bad(absl::StrCat("'", name, "': must be a whole number"));
  return it->get<uint64_t>();
}

// An id as text, as the console's view has it, or as a number. False: it is neither.
bool ReadId(const Json& value, uint64_t* id) {
  if (value.is_string()) return absl::SimpleAtoi(value.get<std::string>(), id);
  if (!value.is_number_unsigned()) return false;
  *id = value.get<uint64_t>();
  return true;
}

absl::StatusOr<v1::DrainRequest> DrainOf(const Json& body, bool undo) {
  if (absl::Status names = CheckNames(body, {"order", "cell", "instance", "router", "force"});
      !names.ok()) {
    return names;
  }
  v1::DrainRequest request;
  if (const auto instance = body.find("instance"); instance != body.end()) {
    uint64_t id = 0;
    if (!ReadId(*instance, &id)) return Bad("'instance': must be its id");
    request.set_instance(id);
  }
  if (const auto router = body.find("router"); router != body.end()) {
    uint64_t id = 0;  // a text, because a number of a page has too few digits
    if (!router->is_string() || !absl::SimpleAtoi(router->get<std::string>(), &id)) {
      return Bad("'router': must be its number, as text");
    }
    request.set_router(id);
  }
  if ((request.instance() == 0) == (request.router() == 0)) {
    return Bad("'instance' or 'router': give one of them");
  }
  if (const auto force = body.find("force"); force != body.end()) {
    if (!force->is_boolean()) return Bad("'force': must be true or false");
    request.set_force(force->get<bool>());
  }
  request.set_undo(undo);
  return request;
}

absl::StatusOr<Formation> FormationOf(const Json& body, Formation::Act act) {
  if (absl::Status names = CheckNames(body, {"order", "cell", "instances", "group", "size"});
      !names.ok()) {
    return names;
  }
  Formation request;
  request.set_act(act);
  if (const auto list = body.find("instances"); list != body.end()) {
    if (!list->is_array() || list->size() > 1024) return Bad("'instances': must be a list of ids");
    for (const Json& one : *list) {
      uint64_t id = 0;
      if (!ReadId(one, &id)) return Bad("'instances': must be a list of ids");
      request.add_instances(id);
    }
  }
  if (const auto group = body.find("group"); group != body.end()) {
    if (!group->is_string()) return Bad("'group': must be its name");
    request.set_group(group->get<std::string>());
  }
  if (request.instances().empty() == request.group().empty()) {
    return Bad("'instances' or 'group': give one of them");
  }
  const absl::StatusOr<uint64_t> size = Number(body, "size", 0);
  if (!size.ok()) return size.status();
  if (*size > 1024) return Bad("'size': at most 1024");
  request.set_size(static_cast<uint32_t>(*size));
  return request;
}

const std::map<std::string, Formation::Act>& Acts() {
  static const std::map<std::string, Formation::Act> acts = {{"bind", Formation::ACT_BIND},
                                                             {"release", Formation::ACT_RELEASE},
                                                             {"share", Formation::ACT_SHARE},
                                                             {"pin", Formation::ACT_PIN},
                                                             {"unpin", Formation::ACT_UNPIN}};
  return acts;
}

}  // namespace

absl::StatusOr<ConsoleOrder> ParseConsoleOrder(const std::string& text) {
  const Json body = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!body.is_object()) return Bad("The body must be a JSON object");
  const auto name = body.find("order");
  if (name == body.end() || !name->is_string()) return Bad("'order': must be its name");
  ConsoleOrder order{.words = name->get<std::string>()};
  const absl::StatusOr<uint64_t> cell = Number(body, "cell", 0);
  if (!cell.ok()) return cell.status();
  order.cell = *cell;
  if (order.words == "drain" || order.words == "serve") {
    auto call = DrainOf(body, order.words == "serve");
    if (!call.ok()) return call.status();
    order.call = *std::move(call);
    return order;
  }
  const auto act = Acts().find(order.words);
  if (act == Acts().end()) {
    return Bad("'order': must be drain, serve, bind, release, share, pin or unpin");
  }
  auto call = FormationOf(body, act->second);
  if (!call.ok()) return call.status();
  order.call = *std::move(call);
  return order;
}

}  // namespace skein::services
