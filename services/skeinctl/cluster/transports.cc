#include "services/skeinctl/cluster/transports.h"

#include <chrono>
#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "nlohmann/json.hpp"
#include "services/http/client.h"
#include "services/skeinctl/cluster/cluster_client.h"
#include "services/skeinctl/terminal/table.h"

namespace skein::services {
namespace {

using Json = nlohmann::ordered_json;

constexpr auto kAnswerMax = std::chrono::seconds(5);

std::string TextOf(const Json& json, const char* name) {
  const auto it = json.find(name);
  return it != json.end() && it->is_string() ? it->get<std::string>() : "";
}

double NumberOf(const Json& json, const char* name) {
  const auto it = json.find(name);
  return it != json.end() && it->is_number() ? it->get<double>() : 0;
}

// Null: there is none.
Json ArrayOf(const std::string& text, const char* name) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return Json();
  const auto it = json.find(name);
  return it != json.end() && it->is_array() ? *it : Json();
}

HandoffPair Moved(HandoffPair pair, const Json& handoff) {
  pair.path = TextOf(handoff, "path");
  pair.transport = TextOf(handoff, "transport");
  pair.why_not_faster = TextOf(handoff, "why_not_faster");
  pair.bytes = NumberOf(handoff, "bytes");
  pair.gb_per_s = NumberOf(handoff, "gb_per_s");
  return pair;
}

void AddPairs(const v1::InstanceStatus& from, const v1::InstanceStatus& to,
              const TransportsAnswer& answer, TransportsView* view) {
  HandoffPair pair;
  pair.from = from.instance();
  pair.to = to.instance();
  pair.from_endpoint = from.registration().endpoint();
  pair.to_endpoint = to.registration().endpoint();
  pair.error = answer.error;
  bool moved = false;
  for (const Json& handoff : ArrayOf(answer.json, "handoffs")) {
    if (TextOf(handoff, "endpoint") != pair.to_endpoint) continue;
    view->handoffs.push_back(Moved(pair, handoff));
    moved = true;
  }
  if (!moved) view->handoffs.push_back(pair);
}

void AddGroups(const v1::InstanceStatus& instance, const TransportsAnswer& answer,
               TransportsView* view) {
  GroupRow of_instance;
  of_instance.instance = instance.instance();
  of_instance.role = instance.registration().role() == v1::ROLE_PREFILL ? "prefill" : "decode";
  of_instance.endpoint = instance.registration().endpoint();
  of_instance.error = answer.error;
  if (!answer.error.empty()) view->groups.push_back(of_instance);
  for (const Json& group : ArrayOf(answer.json, "groups")) {
    GroupRow row = of_instance;
    row.instances = static_cast<int64_t>(NumberOf(group, "instances"));
    row.path = TextOf(group, "path");
    row.why_not_faster = TextOf(group, "why_not_faster");
    row.bytes = NumberOf(group, "bytes");
    row.gb_per_s = NumberOf(group, "gb_per_s");
    row.best_gb_per_s = NumberOf(group, "best_gb_per_s");
    view->groups.push_back(std::move(row));
  }
}

std::string NameOf(uint64_t instance, const std::string& endpoint) {
  return absl::StrCat(instance, " (", endpoint, ")");
}

std::string OrDash(const std::string& text) { return text.empty() ? "-" : text; }

std::string Fixed(double number) { return absl::StrFormat("%.3f", number); }

std::vector<std::string> RowOf(const HandoffPair& pair) {
  const std::string from = NameOf(pair.from, pair.from_endpoint);
  const std::string to = NameOf(pair.to, pair.to_endpoint);
  if (!pair.error.empty()) return {from, to, "?", "?", "?", "?", pair.error};
  if (pair.transport.empty()) return {from, to, "-", "-", "0", "-", "no handoff yet"};
  return {from,
          to,
          pair.path,
          pair.transport,
          Fixed(pair.bytes * 1e-9),
          Fixed(pair.gb_per_s),
          OrDash(pair.why_not_faster)};
}

std::vector<std::string> RowOf(const GroupRow& row) {
  const std::string name = NameOf(row.instance, row.endpoint);
  if (!row.error.empty()) return {name, row.role, "?", "?", "?", "?", "?", row.error};
  const bool moved = row.bytes > 0;
  return {name,
          row.role,
          absl::StrCat(row.instances),
          row.path,
          moved ? Fixed(row.bytes * 1e-9) : "0",
          moved ? Fixed(row.gb_per_s) : "-",
          moved ? Fixed(row.best_gb_per_s) : "-",
          OrDash(row.why_not_faster)};
}

// Whether it has GET /debug/transports.
bool Tells(const v1::InstanceStatus& instance) {
  const v1::Role role = instance.registration().role();
  return role == v1::ROLE_PREFILL || role == v1::ROLE_DECODE;
}

// The answers may have no entry for it.
TransportsAnswer AnswerFor(const v1::InstanceStatus& instance,
                           const std::map<uint64_t, TransportsAnswer>& answers) {
  const auto found = answers.find(instance.instance());
  if (found != answers.end()) return found->second;
  return {"", "its admin port was not asked"};
}

TransportsAnswer AnswerOf(const v1::InstanceStatus& instance) {
  const std::string& admin = instance.registration().admin_endpoint();
  const auto address = http::ParseAddress(admin);
  if (!address.ok()) return {"", "its admin port is unknown"};
  const auto response = http::Ask(*address, {"GET", "/debug/transports", {}}, kAnswerMax);
  if (!response.ok()) return {"", std::string(response.status().message())};
  if (response->status != 200) return {"", absl::StrCat(admin, " answers ", response->status)};
  return {response->body, ""};
}

}  // namespace

TransportsView ViewOf(const v1::StatusResponse& status,
                      const std::map<uint64_t, TransportsAnswer>& answers) {
  TransportsView view;
  for (const v1::InstanceStatus& from : status.instances()) {
    if (!Tells(from)) continue;
    const TransportsAnswer answer = AnswerFor(from, answers);
    AddGroups(from, answer, &view);
    if (from.registration().role() != v1::ROLE_PREFILL) continue;
    for (const v1::InstanceStatus& to : status.instances()) {
      if (to.registration().role() != v1::ROLE_DECODE) continue;
      if (to.registration().model() == from.registration().model()) {
        AddPairs(from, to, answer, &view);
      }
    }
  }
  return view;
}

std::string TransportsTable(const TransportsView& view) {
  std::vector<std::vector<std::string>> rows = {
      {"FROM", "TO", "PATH", "TRANSPORT", "GB", "GB/S", "WHY NOT FASTER"}};
  for (const HandoffPair& pair : view.handoffs) rows.push_back(RowOf(pair));
  const std::string text =
      view.handoffs.empty() ? "no pair of a prefill and a decode instance\n" : AlignedTable(rows);
  if (view.groups.empty()) return text;
  rows = {{"INSTANCE", "ROLE", "STEPS OF", "PATH", "GB", "GB/S", "BEST GB/S", "WHY NOT FASTER"}};
  for (const GroupRow& row : view.groups) rows.push_back(RowOf(row));
  return absl::StrCat(text, "\n", AlignedTable(rows));
}

std::string TransportsViewJson(const TransportsView& view) {
  Json json = {{"handoffs", Json::array()}, {"groups", Json::array()}};
  for (const HandoffPair& pair : view.handoffs) {
    const bool moved = !pair.transport.empty();
    const auto known = [&](auto value) { return moved ? Json(value) : Json(); };
    json["handoffs"].push_back({{"from", pair.from},
                                {"from_endpoint", pair.from_endpoint},
                                {"to", pair.to},
                                {"to_endpoint", pair.to_endpoint},
                                {"path", known(pair.path)},
                                {"transport", known(pair.transport)},
                                {"bytes", known(static_cast<uint64_t>(pair.bytes))},
                                {"gb_per_s", known(pair.gb_per_s)},
                                {"why_not_faster", known(pair.why_not_faster)},
                                {"error", pair.error}});
  }
  for (const GroupRow& row : view.groups) {
    const auto known = [&](auto value) { return row.error.empty() ? Json(value) : Json(); };
    json["groups"].push_back({{"instance", row.instance},
                              {"role", row.role},
                              {"endpoint", row.endpoint},
                              {"instances", known(row.instances)},
                              {"path", known(row.path)},
                              {"bytes", known(static_cast<uint64_t>(row.bytes))},
                              {"gb_per_s", known(row.gb_per_s)},
                              {"best_gb_per_s", known(row.best_gb_per_s)},
                              {"why_not_faster", known(row.why_not_faster)},
                              {"error", row.error}});
  }
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

void TransportsFlags::Register(FlagSet* set) {
  set->About(absl::StrCat(
      "Show the path that KV takes from each prefill to each decode instance, its rate, and why no "
      "faster path is used; and the same for ring steps of prefill instances and for the groups of "
      "a "
      "node's decode instances.\n\nGB/s of handoffs: bytes divided by the time during which at "
      "least "
      "one handoff ran. GB/s of steps include waits for slower instances; the best is the fastest "
      "call of at least 1 MiB. A pair has no path before its first handoff, and ring steps have "
      "none "
      "before the first; a decode group's path is known when it is ready. skeinctl asks the admin "
      "ports of the workers (GET /debug/transports). ",
      ExitCodesHelp()));
  RegisterCluster(&orchestrator, set);
  RegisterFormat(&format, "table", set);
}

int RunTransports(const TransportsFlags& flags) {
  const auto orchestrator = FindOrchestrator(flags.orchestrator, EnvironmentMap());
  if (!orchestrator.ok()) return EndWith("transports", orchestrator.status());
  const auto status = ClusterClient(*orchestrator).Status();
  if (!status.ok()) return EndWith("transports", status.status());
  std::map<uint64_t, TransportsAnswer> answers;
  for (const v1::InstanceStatus& instance : status->instances()) {
    if (Tells(instance)) answers[instance.instance()] = AnswerOf(instance);
  }
  const TransportsView view = ViewOf(*status, answers);
  const bool json = flags.format == "json";
  std::fputs((json ? TransportsViewJson(view) : TransportsTable(view)).c_str(), stdout);
  return kDone;
}

}  // namespace skein::services
