#include "services/codec/profile_json.h"

#include <cmath>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "scheduler/plan/policy.h"

namespace skein::services {
namespace {

using Json = nlohmann::ordered_json;
using scheduler::CommitMode;
using scheduler::ImprovementRateTable;
using scheduler::LatencyModel;
using scheduler::Policy;
using scheduler::RollingSetting;
using scheduler::RollingTable;
using scheduler::RollingTuning;
using scheduler::SpCoefficients;
using scheduler::TensorShape;

constexpr std::pair<const char*, double SpCoefficients::*> kCoefficients[] = {
    {"a_s", &SpCoefficients::a_s},
    {"b_s_per_token", &SpCoefficients::b_s_per_token},
    {"c_s_per_token2", &SpCoefficients::c_s_per_token2},
    {"d_s_per_token2", &SpCoefficients::d_s_per_token2}};

template <typename... Text>
absl::Status Wrong(const Text&... text) {
  return absl::InvalidArgumentError(absl::StrCat(text...));
}

std::string Shown(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace).substr(0, 80);
}

absl::StatusOr<double> Number(const Json& object, const char* key, const std::string& where) {
  const auto it = object.find(key);
  if (it == object.end()) return Wrong(where, ".", key, " is missing");
  if (!it->is_number()) return Wrong(where, ".", key, " is ", Shown(*it), ", not a number");
  return it->get<double>();
}

absl::StatusOr<int64_t> Count(const Json& object, const char* key, const std::string& where,
                              double most) {
  const auto value = Number(object, key, where);
  if (!value.ok()) return value.status();
  if (!(*value >= 1 && *value <= most) || *value != std::floor(*value)) {
    return Wrong(where, ".", key, " is ", *value, ", not a whole number between 1 and ", most);
  }
  return static_cast<int64_t>(*value);
}

// `more`: the other keys of the object.
absl::StatusOr<SpCoefficients> ParseSize(const Json& json, const std::string& where,
                                         const std::set<std::string>& more = {}) {
  if (!json.is_object()) return Wrong(where, " is ", Shown(json), ", not an object");
  SpCoefficients coefficients;
  for (const auto& [key, member] : kCoefficients) {
    const auto value = Number(json, key, where);
    if (!value.ok()) return value.status();
    coefficients.*member = *value;
  }
  for (const auto& [key, value] : json.items()) {
    bool known = more.contains(key);
    for (const auto& [name, member] : kCoefficients) known = known || key == name;
    if (!known) return Wrong(where, ".", key, " is not a coefficient");
  }
  return coefficients;
}

// What a latency model is made of.
struct LatencyRows {
  std::map<int, SpCoefficients> sizes;
  std::vector<TensorShape> tensor;
  bool has_sizes = false;
};

absl::Status ParseSizes(const Json& json, LatencyRows* rows) {
  if (!json.is_object()) return Wrong("sp is ", Shown(json), ", not an object");
  rows->has_sizes = true;
  for (const auto& [key, value] : json.items()) {
    int sp = 0;
    if (!absl::SimpleAtoi(key, &sp)) return Wrong("sp: '", key, "' is not a size");
    const auto coefficients = ParseSize(value, absl::StrCat("sp.", key));
    if (!coefficients.ok()) return coefficients.status();
    if (!rows->sizes.emplace(sp, *coefficients).second) return Wrong("sp: ", sp, " occurs twice");
  }
  return absl::OkStatus();
}

absl::Status ParseTensor(const Json& json, LatencyRows* rows) {
  if (!json.is_array()) return Wrong("tensor is ", Shown(json), ", not an array");
  for (const Json& item : json) {
    const std::string where = absl::StrCat("tensor[", rows->tensor.size(), "]");
    const auto coefficients = ParseSize(item, where, {"instances", "tp"});
    if (!coefficients.ok()) return coefficients.status();
    const auto ranks = Count(item, "instances", where, LatencyModel::kMaxSp);
    if (!ranks.ok()) return ranks.status();
    const auto tp = Count(item, "tp", where, LatencyModel::kMaxSp);
    if (!tp.ok()) return tp.status();
    rows->tensor.push_back({static_cast<int>(*ranks), static_cast<int>(*tp), *coefficients});
  }
  return absl::OkStatus();
}

Json SizesJson(const LatencyModel& latency) {
  Json sizes = Json::object();
  for (const int sp : latency.sp_sizes()) {
    const SpCoefficients& from = latency.CoefficientsAt(latency.IndexOf(sp));
    Json& to = sizes[std::to_string(sp)];
    for (const auto& [key, member] : kCoefficients) to[key] = from.*member;
  }
  return sizes;
}

Json TensorJson(const LatencyModel& latency) {
  Json rows = Json::array();
  for (size_t at = 0; at < latency.sp_sizes().size(); ++at) {
    for (const TensorShape& shape : latency.TensorAt(static_cast<int>(at))) {
      Json& row = rows.emplace_back(Json{{"instances", shape.ranks}, {"tp", shape.tp}});
      for (const auto& [key, member] : kCoefficients) row[key] = shape.coefficients.*member;
    }
  }
  return rows;
}

absl::StatusOr<ImprovementRateTable> ParseRates(const Json& json) {
  if (!json.is_array()) return Wrong("improvement_rates is ", Shown(json), ", not an array");
  std::vector<ImprovementRateTable::Row> rows;
  for (const Json& item : json) {
    const std::string where = absl::StrCat("improvement_rates[", rows.size(), "]");
    if (!item.is_object()) return Wrong(where, " is ", Shown(item), ", not an object");
    const auto load = Number(item, "requests_per_s", where);
    if (!load.ok()) return load.status();
    const auto rate = Number(item, "improvement_rate", where);
    if (!rate.ok()) return rate.status();
    rows.push_back({*load, *rate});
  }
  return ImprovementRateTable::Make(std::move(rows));
}

constexpr std::pair<const char*, double RollingTuning::*> kTuning[] = {
    {"price", &RollingTuning::price},
    {"slack", &RollingTuning::slack},
    {"stretch", &RollingTuning::stretch},
    {"waiting_weight", &RollingTuning::waiting_weight},
    {"calm_s", &RollingTuning::calm_s}};

absl::StatusOr<CommitMode> ParseCommit(const Json& row, const std::string& where) {
  CommitMode mode;
  const auto it = row.find("commit");
  if (it == row.end()) return mode;
  const auto policy = Policy::Parse(it->is_string() ? it->get<std::string>() : "");
  const Policy::Kind kind = policy.ok() ? policy->kind : Policy::Kind::kRandom;
  if (kind == Policy::Kind::kFixed) {
    return CommitMode{CommitMode::Kind::kFixed, 0, policy->sp};
  }
  if (kind == Policy::Kind::kTetris) mode.kind = CommitMode::Kind::kTetris;
  if (kind == Policy::Kind::kSingle) mode.kind = CommitMode::Kind::kSingle;
  if (mode.kind == CommitMode::Kind::kNone) {
    return Wrong(where, ".commit is ", Shown(*it), ", not tetris, single or fixedN");
  }
  const auto rate = Number(row, "improvement_rate", where);
  if (!rate.ok()) return rate.status();
  if (!(*rate >= 0 && *rate < 1)) {
    return Wrong(where, ".improvement_rate is ", *rate, ", not in [0, 1)");
  }
  mode.improvement_rate = *rate;
  return mode;
}

absl::StatusOr<RollingSetting> ParseSetting(const Json& row, const std::string& where) {
  if (!row.is_object()) return Wrong(where, " is ", Shown(row), ", not an object");
  RollingSetting setting;
  const auto load = Number(row, "requests_per_s", where);
  if (!load.ok()) return load.status();
  setting.requests_per_s = *load;
  for (const auto& [key, member] : kTuning) {
    const auto value = Number(row, key, where);
    if (!value.ok()) return value.status();
    setting.tuning.*member = *value;
  }
  const auto commit = ParseCommit(row, where);
  if (!commit.ok()) return commit.status();
  setting.tuning.commit = *commit;
  const bool has_rate =
      commit->kind == CommitMode::Kind::kTetris || commit->kind == CommitMode::Kind::kSingle;
  for (const auto& [key, value] : row.items()) {
    bool known = key == "requests_per_s" || key == "commit";
    known = known || (has_rate && key == "improvement_rate");
    for (const auto& [name, member] : kTuning) known = known || key == name;
    if (!known) return Wrong(where, ".", key, " requires 'commit': tetris or single");
  }
  return setting;
}

absl::StatusOr<RollingTable> ParseRolling(const Json& json) {
  if (!json.is_array()) return Wrong("rolling is ", Shown(json), ", not an array");
  std::vector<RollingSetting> rows;
  for (const Json& item : json) {
    auto setting = ParseSetting(item, absl::StrCat("rolling[", rows.size(), "]"));
    if (!setting.ok()) return setting.status();
    rows.push_back(*std::move(setting));
  }
  auto table = RollingTable::Make(std::move(rows));
  if (!table.ok()) return Wrong("rolling: ", std::string(table.status().message()));
  return table;
}

using scheduler::ShiftRule;
using scheduler::orchestrator::FormationProfile;

absl::StatusOr<ShiftRule> ParseShift(const Json& row, const std::string& where, int32_t size) {
  const auto tokens = Number(row, "shift_tokens", where);
  if (!tokens.ok()) return tokens.status();
  if (!(*tokens >= 0 && *tokens <= 1e9)) {
    return Wrong(where, ".shift_tokens is ", *tokens, ", not between 0 and 1e9");
  }
  ShiftRule shift{.tokens = static_cast<int64_t>(*tokens)};
  if (!row.contains("shift_tp")) return shift;
  const auto tp = Number(row, "shift_tp", where);
  if (!tp.ok()) return tp.status();
  const bool whole = *tp >= 1 && *tp < size && *tp == std::floor(*tp);
  if (whole) shift.tp = static_cast<int32_t>(*tp);
  if (whole && shift.Fits(size)) return shift;
  return Wrong(where, ".shift_tp is ", *tp, ", not a power of two below instances, ", size);
}

absl::Status ParseFormation(const Json& row, const std::string& where, FormationProfile* profile) {
  if (!row.is_object()) return Wrong(where, " is ", Shown(row), ", not an object");
  for (const auto& [key, value] : row.items()) {
    if (key == "instances" || key == "gain") continue;
    if (key == "shift_tokens" || key == "shift_tp") continue;
    return Wrong(where, ".", key, " is not a key of a formation");
  }
  const auto instances = Number(row, "instances", where);
  if (!instances.ok()) return instances.status();
  const auto size = static_cast<int32_t>(*instances);
  if (*instances != 2 && *instances != 4 && *instances != 8) {
    return Wrong(where, ".instances is ", *instances, ", not 2, 4 or 8");
  }
  const auto gain = Number(row, "gain", where);
  if (!gain.ok()) return gain.status();
  if (!(*gain > 0)) return Wrong(where, ".gain is ", *gain, ", not above 0");
  if (!profile->gains.emplace(size, *gain).second) {
    return Wrong(where, ".instances: ", size, " occurs twice");
  }
  if (!row.contains("shift_tokens")) {
    if (!row.contains("shift_tp")) return absl::OkStatus();
    return Wrong(where, ".shift_tp is there without shift_tokens");
  }
  const auto shift = ParseShift(row, where, size);
  if (!shift.ok()) return shift.status();
  profile->shifts[size] = *shift;
  return absl::OkStatus();
}

absl::StatusOr<FormationProfile> ParseFormations(const Json& json) {
  if (!json.is_array()) return Wrong("formations is ", Shown(json), ", not an array");
  FormationProfile profile;
  size_t row = 0;
  for (const Json& item : json) {
    absl::Status status = ParseFormation(item, absl::StrCat("formations[", row++, "]"), &profile);
    if (!status.ok()) return status;
  }
  return profile;
}

absl::StatusOr<int64_t> ParseThreshold(const Json& json) {
  const bool whole = json.is_number_integer() && json >= 1 && json <= 1'000'000;
  if (whole) return json.get<int64_t>();
  return Wrong("shared_batch_threshold is ", Shown(json), ", not a whole number from 1 to 1e6");
}

Json FormationsJson(const FormationProfile& profile) {
  Json rows = Json::array();
  for (const auto& [size, gain] : profile.gains) {
    Json& row = rows.emplace_back(Json{{"instances", size}, {"gain", gain}});
    const auto shift = profile.shifts.find(size);
    if (shift == profile.shifts.end()) continue;
    row["shift_tokens"] = shift->second.tokens;
    if (shift->second.tp != 1) row["shift_tp"] = shift->second.tp;
  }
  return rows;
}

Json RollingJson(const RollingTable& table) {
  Json rows = Json::array();
  for (const RollingSetting& row : table.rows()) {
    Json& to = rows.emplace_back();
    to["requests_per_s"] = row.requests_per_s;
    for (const auto& [key, member] : kTuning) to[key] = row.tuning.*member;
    const CommitMode& commit = row.tuning.commit;
    if (commit.kind == CommitMode::Kind::kNone) continue;
    if (commit.kind == CommitMode::Kind::kFixed) {
      to["commit"] = absl::StrCat("fixed", commit.sp);
      continue;
    }
    to["commit"] = commit.kind == CommitMode::Kind::kTetris ? "tetris" : "single";
    to["improvement_rate"] = commit.improvement_rate;
  }
  return rows;
}

using scheduler::DecodeOptions;

constexpr std::pair<const char*, double DecodeOptions::*> kDecodeTimes[] = {
    {"step_base_s", &DecodeOptions::step_base_s},
    {"step_per_sequence_s", &DecodeOptions::step_per_sequence_s},
    {"step_per_kv_token_s", &DecodeOptions::step_per_kv_token_s},
    {"step_weights_s", &DecodeOptions::step_weights_s}};
constexpr std::pair<const char*, int64_t DecodeOptions::*> kDecodeCounts[] = {
    {"blocks", &DecodeOptions::blocks}, {"block_tokens", &DecodeOptions::block_tokens}};

absl::StatusOr<DecodeOptions> ParseDecode(const Json& json) {
  if (!json.is_object()) return Wrong("decode is ", Shown(json), ", not an object");
  DecodeOptions decode;
  for (const auto& [key, member] : kDecodeTimes) {
    const auto value = Number(json, key, "decode");
    if (!value.ok()) return value.status();
    decode.*member = *value;
  }
  for (const auto& [key, member] : kDecodeCounts) {
    const auto value = Count(json, key, "decode", 1e12);
    if (!value.ok()) return value.status();
    decode.*member = *value;
  }
  const auto instances = Count(json, "prefill_instances", "decode", 1024);
  if (!instances.ok()) return instances.status();
  decode.prefill_instances = static_cast<int>(*instances);
  if (json.size() != std::size(kDecodeTimes) + std::size(kDecodeCounts) + 1) {
    return Wrong("decode has a key that is not one of decode instances");
  }
  if (absl::Status status = CheckDecode(decode, {}); !status.ok()) {
    return Wrong("decode: ", std::string(status.message()));
  }
  return decode;
}

Json DecodeJson(const DecodeOptions& decode) {
  Json json;
  for (const auto& [key, member] : kDecodeCounts) json[key] = decode.*member;
  for (const auto& [key, member] : kDecodeTimes) json[key] = decode.*member;
  json["prefill_instances"] = decode.prefill_instances;
  return json;
}

absl::Status ParseMember(const std::string& key, const Json& value, Profile* profile,
                         LatencyRows* rows) {
  const std::pair<const char*, std::string Profile::*> texts[] = {
      {"model", &Profile::model}, {"device", &Profile::device}, {"date", &Profile::date}};
  for (const auto& [name, member] : texts) {
    if (key != name) continue;
    if (!value.is_string()) return Wrong(key, " is ", Shown(value), ", not a string");
    profile->*member = value.get<std::string>();
    return absl::OkStatus();
  }
  if (key == "sp") return ParseSizes(value, rows);
  if (key == "tensor") return ParseTensor(value, rows);
  if (key == "improvement_rates") {
    auto rates = ParseRates(value);
    if (!rates.ok()) return rates.status();
    profile->improvement_rates = *std::move(rates);
    return absl::OkStatus();
  }
  if (key == "rolling") {
    auto rolling = ParseRolling(value);
    if (!rolling.ok()) return rolling.status();
    profile->rolling = *std::move(rolling);
    return absl::OkStatus();
  }
  if (key == "formations") {
    auto formations = ParseFormations(value);
    if (!formations.ok()) return formations.status();
    if (profile->formations) {
      formations->shared_batch_threshold = profile->formations->shared_batch_threshold;
    }
    profile->formations = *std::move(formations);
    return absl::OkStatus();
  }
  if (key == "shared_batch_threshold") {
    const auto threshold = ParseThreshold(value);
    if (!threshold.ok()) return threshold.status();
    if (!profile->formations) profile->formations.emplace();
    profile->formations->shared_batch_threshold = *threshold;
    return absl::OkStatus();
  }
  if (key == "base_devices") {
    const auto devices = Count(Json{{key, value}}, "base_devices", "profile", 1024);
    if (!devices.ok()) return devices.status();
    profile->base_devices = *devices;
    return absl::OkStatus();
  }
  if (key == "decode") {
    auto decode = ParseDecode(value);
    if (!decode.ok()) return decode.status();
    profile->decode = *std::move(decode);
    return absl::OkStatus();
  }
  return Wrong("'", key, "' is not a key of a profile");
}

}  // namespace

absl::StatusOr<Profile> ParseProfile(std::string_view text) {
  const Json json = Json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return Wrong("not valid JSON");
  if (!json.is_object()) return Wrong("it is ", Shown(json), ", not an object");
  Profile profile;
  LatencyRows rows;
  for (const auto& [key, value] : json.items()) {
    if (absl::Status status = ParseMember(key, value, &profile, &rows); !status.ok()) {
      return status;
    }
  }
  if (!rows.has_sizes) {
    if (!rows.tensor.empty()) return Wrong("sp is missing, which tensor needs");
    if (!profile.formations.has_value()) return Wrong("sp is missing");
    return profile;
  }
  auto latency = LatencyModel::Make(rows.sizes, rows.tensor);
  if (!latency.ok()) return Wrong(std::string(latency.status().message()));
  profile.latency = *std::move(latency);
  return profile;
}

std::string ProfileJson(const Profile& profile) {
  Json json;
  json["model"] = profile.model;
  json["device"] = profile.device;
  json["date"] = profile.date;
  if (profile.latency.has_value()) {
    json["sp"] = SizesJson(*profile.latency);
    if (Json tensor = TensorJson(*profile.latency); !tensor.empty()) json["tensor"] = tensor;
  }
  if (profile.improvement_rates.has_value()) {
    Json& rates = json["improvement_rates"] = Json::array();
    for (const auto& row : profile.improvement_rates->rows()) {
      rates.push_back(
          {{"requests_per_s", row.requests_per_s}, {"improvement_rate", row.improvement_rate}});
    }
  }
  if (profile.rolling.has_value()) json["rolling"] = RollingJson(*profile.rolling);
  if (profile.formations.has_value()) json["formations"] = FormationsJson(*profile.formations);
  if (profile.formations.has_value() && profile.formations->shared_batch_threshold) {
    json["shared_batch_threshold"] = *profile.formations->shared_batch_threshold;
  }
  if (profile.base_devices != 1) json["base_devices"] = profile.base_devices;
  if (profile.decode.has_value()) json["decode"] = DecodeJson(*profile.decode);
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace skein::services
