#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "services/skeinctl/cluster/formation.h"
#include "services/skeinctl/terminal/table.h"

namespace skein::services {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kWidth = 100;
constexpr size_t kIndent = 2;
constexpr size_t kGap = 2;
constexpr const char* kStands = "stands";  // the stage of a formation that does not change

double Seconds(uint64_t us) { return static_cast<double>(us) * 1e-6; }

std::string NameOf(uint64_t instance, const InstanceNames& names) {
  const auto found = names.find(instance);
  return found == names.end() ? absl::StrCat(instance) : found->second;
}

template <typename Ids>
std::string Names(const Ids& instances, const InstanceNames& names) {
  return absl::StrJoin(instances, ", ", [&](std::string* out, uint64_t instance) {
    absl::StrAppend(out, NameOf(instance, names));
  });
}

// A label and what is said of it. An empty label continues the one before.
struct Line {
  std::string label;
  std::string text;
};

std::string Lines(const std::vector<Line>& lines) {
  size_t width = 0;
  for (const Line& line : lines) width = std::max(width, line.label.size());
  const size_t indent = kIndent + width + kGap;
  std::string text;
  for (const Line& line : lines) {
    std::string wrapped = Wrapped(line.text, static_cast<int>(indent), kWidth);
    if (!line.label.empty() && wrapped.size() > indent) {
      wrapped.replace(kIndent, line.label.size(), line.label);
    }
    text += wrapped;
  }
  return text;
}

std::string Headline(const v1::GroupStatus& group) {
  const int members = group.members_size();
  std::string text = absl::StrCat(group.name(), ": ", members, " ", RoleName(group.role()),
                                  members == 1 ? " instance" : " instances");
  if (group.generation() == 0) {
    absl::StrAppend(&text, members > 1 ? ", no communicators yet" : "");
  } else {
    absl::StrAppend(&text, ", communicators ready at ", group.ready(), " of ", members);
  }
  return text;
}

void AddFormation(const v1::GroupStatus::Formation& formation, const InstanceNames& names,
                  std::vector<Line>* lines) {
  std::string text = Names(formation.members(), names);
  if (absl::StartsWith(formation.name(), "bound")) text += "; the first leads";
  absl::StrAppend(&text, "; for ", DurationText(Seconds(formation.for_us())));
  if (formation.pinned()) text += ", pinned";
  lines->push_back({formation.name(), std::move(text)});
  if (formation.stage() != kStands && !formation.stage().empty()) {
    lines->push_back({"", absl::StrCat("switch under way: ", formation.stage())});
  }
  if (!formation.why().empty()) lines->push_back({"", formation.why()});
}

void AddChecks(const v1::GroupStatus& group, const std::vector<FormationChecks>& all,
               std::vector<Line>* lines) {
  for (const FormationChecks& one : all) {
    if (one.group != group.name()) continue;
    std::string label = absl::StrCat("verify ", one.formation);
    for (const FormationCheck& check : one.checks) {
      lines->push_back({std::exchange(label, ""),
                        absl::StrCat(services::NameOf(check.verdict), ": ", check.detail)});
    }
  }
}

std::string GroupText(const v1::GroupStatus& group, const InstanceNames& names,
                      const std::vector<FormationChecks>* checks) {
  std::vector<Line> lines;
  for (const auto& formation : group.formations()) AddFormation(formation, names, &lines);
  if (!group.why().empty()) lines.push_back({"policy", group.why()});
  for (const auto& rejected : group.rejected()) {
    lines.push_back({absl::StrCat("not ", rejected.formation()), rejected.why()});
  }
  if (checks != nullptr) AddChecks(group, *checks, &lines);
  return absl::StrCat(Wrapped(Headline(group), 0, kWidth), Lines(lines));
}

std::string VerifiedText(const std::vector<FormationChecks>& checks) {
  if (checks.empty()) return "\nverify: nothing is bound\n";
  std::vector<FormationCheck> all;
  for (const FormationChecks& one : checks) {
    all.insert(all.end(), one.checks.begin(), one.checks.end());
  }
  return absl::StrCat("\nverify: ", services::NameOf(VerdictOf(all)), "\n");
}

template <typename Ids>
Json InstancesJson(const Ids& instances) {
  Json json = Json::array();
  for (const uint64_t instance : instances) json.push_back(instance);
  return json;
}

Json ChecksJson(const std::string& group, const std::vector<FormationChecks>& all) {
  Json json = Json::array();
  for (const FormationChecks& one : all) {
    if (one.group != group) continue;
    for (const FormationCheck& check : one.checks) {
      json.push_back({{"formation", one.formation},
                      {"epoch", one.epoch},
                      {"instances", InstancesJson(one.members)},
                      {"check", check.name},
                      {"verdict", services::NameOf(check.verdict)},
                      {"detail", check.detail}});
    }
  }
  return json;
}

Json GroupJson(const v1::GroupStatus& group) {
  Json json;
  json["name"] = group.name();
  json["role"] = RoleName(group.role());
  json["model"] = group.model();
  json["node"] = group.node().empty() ? Json() : Json(group.node());
  json["instances"] = InstancesJson(group.members());
  json["formations"] = Json::array();
  for (const v1::GroupStatus::Formation& one : group.formations()) {
    json["formations"].push_back({{"name", one.name()},
                                  {"instances", InstancesJson(one.members())},
                                  {"stage", one.stage()},
                                  {"epoch", one.epoch()},
                                  {"pinned", one.pinned()},
                                  {"for_s", Seconds(one.for_us())},
                                  {"why", one.why()}});
  }
  json["for_s"] = Seconds(group.for_us());
  json["why"] = group.why();
  json["rejected"] = Json::array();
  for (const v1::GroupStatus::Rejected& one : group.rejected()) {
    json["rejected"].push_back({{"formation", one.formation()}, {"why", one.why()}});
  }
  json["generation"] = group.generation();
  json["ready"] = group.ready();
  return json;
}

}  // namespace

std::string FormationText(const std::vector<v1::GroupStatus>& groups, const InstanceNames& names,
                          const std::vector<FormationChecks>* checks) {
  if (groups.empty()) return "no decode instance\n";
  std::string text;
  for (const v1::GroupStatus& group : groups) {
    absl::StrAppend(&text, text.empty() ? "" : "\n", GroupText(group, names, checks));
  }
  return checks == nullptr ? text : text + VerifiedText(*checks);
}

nlohmann::ordered_json FormationJson(const std::vector<v1::GroupStatus>& groups,
                                     const std::vector<FormationChecks>* checks) {
  Json json;
  json["groups"] = Json::array();
  for (const v1::GroupStatus& group : groups) {
    Json one = GroupJson(group);
    if (checks != nullptr) one["checks"] = ChecksJson(group.name(), *checks);
    json["groups"].push_back(std::move(one));
  }
  if (checks == nullptr) return json;
  std::vector<FormationCheck> all;
  for (const FormationChecks& one : *checks) {
    all.insert(all.end(), one.checks.begin(), one.checks.end());
  }
  json["verified"] = services::NameOf(VerdictOf(all));
  return json;
}

}  // namespace skein::services
