#include "services/skeinctl/cluster/cluster_view.h"

#include <unistd.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "services/flags/flag_parser.h"
#include "services/skeinctl/terminal/table.h"

namespace skein::services {
namespace {

using Json = nlohmann::ordered_json;
using Rows = std::vector<std::vector<std::string>>;

double Seconds(uint64_t us) { return static_cast<double>(us) * 1e-6; }
std::string Ago(uint64_t us) { return DurationText(Seconds(us)); }

double KvShare(const v1::BlockCounts& blocks) {
  if (blocks.total() == 0) return 0;
  return static_cast<double>(blocks.held() + blocks.cached()) / static_cast<double>(blocks.total());
}

uint64_t LoadOf(const v1::InstanceStatus& instance) {
  return instance.load().running() + instance.load().waiting();
}

// The last measured rate is stale when an instance has nothing to do.
double TokensPerSecond(const v1::InstanceStatus& instance) {
  return LoadOf(instance) == 0 ? 0 : instance.load().tokens_per_second();
}

std::string NameOr(const ProcessNames& names, const std::string& host, int64_t pid) {
  const std::string name = names.Find(host, pid);
  return name.empty() ? "-" : name;
}

std::vector<const v1::InstanceStatus*> Sorted(const v1::StatusResponse& status, SortBy sort) {
  std::vector<const v1::InstanceStatus*> list;
  for (const v1::InstanceStatus& instance : status.instances()) list.push_back(&instance);
  const auto key = [sort](const v1::InstanceStatus& instance) {
    switch (sort) {
      case SortBy::kLoad:
        return -static_cast<double>(LoadOf(instance));
      case SortBy::kKv:
        return -KvShare(instance.load().blocks());
      case SortBy::kTokens:
        return -TokensPerSecond(instance);
      default:
        return static_cast<double>(instance.registration().role());
    }
  };
  std::stable_sort(list.begin(), list.end(),
                   [&](const auto* a, const auto* b) { return key(*a) < key(*b); });
  return list;
}

// The table, or its most important columns if space is short. Ids replace missing names.
std::string Fitted(const Rows& rows, std::vector<std::string> by_importance, size_t width) {
  if (width == 0) return AlignedTable(rows);
  const bool named =
      std::none_of(rows.begin() + 1, rows.end(), [](const auto& row) { return row[1] == "-"; });
  by_importance.insert(by_importance.begin(), rows.front()[named ? 1 : 0]);
  return FittedTable(rows, by_importance, width);
}

std::string InstanceTable(const v1::StatusResponse& status, const ProcessNames& names,
                          const TableStyle& style) {
  if (status.instances().empty()) return "no instances\n";
  Rows rows = {{"INSTANCE", "NAME", "ROLE", "MODEL", "DEVICE", "STATE", "RUN", "WAIT", "QUEUED TOK",
                "TOK/S", "KV %", "UP", "REPORTED", "ENDPOINT"}};
  for (const v1::InstanceStatus* one : Sorted(status, style.sort)) {
    const v1::RegisterRequest& registration = one->registration();
    const v1::Load& load = one->load();
    rows.push_back(
        {absl::StrCat(one->instance()), NameOr(names, registration.host(), registration.pid()),
         RoleName(registration.role()), registration.model(), registration.device(),
         StateName(*one), absl::StrCat(load.running()), absl::StrCat(load.waiting()),
         absl::StrCat(load.queued_tokens()), absl::StrFormat("%.0f", TokensPerSecond(*one)),
         absl::StrFormat("%.1f", 100 * KvShare(load.blocks())), Ago(one->uptime_us()),
         Ago(one->since_report_us()), registration.endpoint()});
  }
  return Fitted(rows,
                {"ROLE", "STATE", "RUN", "WAIT", "TOK/S", "KV %", "MODEL", "QUEUED TOK", "REPORTED",
                 "UP", "ENDPOINT", "DEVICE"},
                style.width);
}

std::string RouterTable(const v1::StatusResponse& status, const ProcessNames& names, size_t width) {
  if (status.routers().empty()) return "no routers\n";
  Rows rows = {{"ROUTER", "NAME", "STATE", "RUN", "WAIT", "UP", "REPORTED", "ADMIN"}};
  for (const v1::RouterStatus& one : status.routers()) {
    const v1::RouterIdentity& identity = one.identity();
    const v1::RouterLoad& load = one.load();
    rows.push_back({identity.endpoint(), NameOr(names, identity.host(), identity.pid()),
                    StateName(one), absl::StrCat(load.running()), absl::StrCat(load.queued()),
                    Ago(load.uptime_us()), Ago(one.since_report_us()), identity.admin_endpoint()});
  }
  return Fitted(rows, {"STATE", "RUN", "WAIT", "REPORTED", "UP", "ROUTER", "ADMIN"}, width);
}

std::string GoneTable(const v1::StatusResponse& status, size_t width) {
  if (status.gone().empty()) return "";
  constexpr int kMost = 10;
  Rows rows = {{"GONE", "ROLE", "MODEL", "ENDPOINT", "AGO", "WHY", "REPLACED"}};
  for (const v1::GoneStatus& one : status.gone()) {
    if (rows.size() > kMost) break;
    const bool router = one.instance() == 0;
    rows.push_back({router ? "-" : absl::StrCat(one.instance()),
                    router ? "router" : RoleName(one.role()), router ? "-" : one.model(),
                    one.endpoint(), Ago(one.gone_us()), one.why(),
                    one.left()       ? "-"
                    : one.replaced() ? "yes"
                                     : "no"});
  }
  const std::vector<std::string> order = {"ROLE", "AGO", "WHY", "REPLACED", "ENDPOINT", "GONE"};
  std::string text = "\n" + (width == 0 ? AlignedTable(rows) : FittedTable(rows, order, width));
  if (status.gone_size() > kMost) {
    absl::StrAppend(&text, "and ", status.gone_size() - kMost, " more (--format json)\n");
  }
  return text;
}

// Of workers and routers that do not fit the cluster.
std::string RefusedTable(const v1::StatusResponse& status, size_t width) {
  if (status.refused_peers().empty()) return "";
  Rows rows = {{"REFUSED", "MODEL", "ENDPOINT", "VERSION", "SINCE", "TIMES", "WHY"}};
  for (const v1::RefusedPeer& one : status.refused_peers()) {
    rows.push_back({one.what(), one.model().empty() ? "-" : one.model(), one.endpoint(),
                    one.version().empty() ? "-" : one.version(), Ago(one.since_us()),
                    absl::StrCat(one.times()), one.why()});
  }
  const std::vector<std::string> order = {"WHY", "ENDPOINT", "VERSION", "SINCE", "TIMES", "MODEL"};
  return "\n" + (width == 0 ? AlignedTable(rows) : FittedTable(rows, order, width));
}

// Lines of at most `width` characters, each indented by `margin`.
std::string Lines(const std::string& text, int margin, size_t width) {
  if (width == 0) return std::string(static_cast<size_t>(margin), ' ') + text + "\n";
  return Wrapped(text, margin, static_cast<int>(width));
}

std::string HealthText(const v1::StatusResponse& status, size_t width) {
  const Health health = HealthOf(status);
  std::string text = absl::StrCat(NameOf(health.level), "\n");
  for (const std::string& reason : health.reasons) text += Lines(reason, 2, width);
  return text;
}

std::string RequestsText(const v1::StatusResponse& status, const TableStyle& style) {
  const Rates& rates = style.rates;
  std::string text = absl::StrFormat(
      "requests: %d planned or queued for prefill, %d waiting for decode, %d at a decode instance; "
      "%d submitted, %d failed",
      status.assigning() + status.assigned(),
      status.waiting_for_decode() + status.reserving() + status.sharing(), status.placed(),
      status.submitted(), status.failed());
  if (rates.requests_per_s >= 0) {
    absl::StrAppendFormat(&text, "; %.1f requests/s, %.1f failed/s", rates.requests_per_s,
                          rates.failed_per_s);
  }
  return Lines(text, 0, style.width);
}

// [oldest, newest]
Json ProtocolJson(const v1::ProtocolRange& protocol) {
  return Json::array({protocol.oldest(), protocol.newest()});
}

Json InstanceJson(const v1::InstanceStatus& instance, const ProcessNames& names) {
  const v1::RegisterRequest& registration = instance.registration();
  const v1::Load& load = instance.load();
  const std::string name = names.Find(registration.host(), registration.pid());
  Json json;
  json["instance"] = instance.instance();
  json["name"] = name.empty() ? Json() : Json(name);
  json["role"] = RoleName(registration.role());
  json["model"] = registration.model();
  json["model_hash"] = registration.model_hash();
  json["device"] = registration.device();
  json["endpoint"] = registration.endpoint();
  json["admin_endpoint"] = registration.admin_endpoint();
  json["host"] = registration.host();
  json["node"] = registration.node().empty() ? registration.host() : registration.node();
  json["pid"] = registration.pid();
  json["version"] = registration.version();
  json["protocol"] = ProtocolJson(registration.protocol());
  json["kv_digest"] = absl::StrCat(absl::Hex(registration.kv_digest(), absl::kZeroPad16));
  json["state"] = StateName(instance);
  json["serving"] = instance.serving();
  json["missed"] = instance.missed();
  json["heard_by"] = instance.heard_by();
  json["hangs"] = instance.hangs();
  json["pace"] = instance.pace();
  json["slowness"] = instance.slowness();
  json["pace_peers"] = instance.pace_peers();
  json["running"] = load.running();
  json["waiting"] = load.waiting();
  json["queued_tokens"] = load.queued_tokens();
  json["tokens_per_second"] = TokensPerSecond(instance);
  json["step_age_s"] = Seconds(load.step_age_us());
  json["queue_s"] = instance.queue_s();
  json["freeness"] = instance.freeness();
  json["placed_requests"] = instance.placed_requests();
  json["uptime_s"] = Seconds(instance.uptime_us());
  json["since_report_s"] = Seconds(instance.since_report_us());
  json["kv_share"] = KvShare(load.blocks());
  json["blocks"] = {{"free", load.blocks().free()},
                    {"held", load.blocks().held()},
                    {"cached", load.blocks().cached()},
                    {"total", load.blocks().total()}};
  return json;
}

Json RouterJson(const v1::RouterStatus& router, const ProcessNames& names) {
  const v1::RouterIdentity& identity = router.identity();
  const v1::RouterLoad& load = router.load();
  const std::string name = names.Find(identity.host(), identity.pid());
  return {{"router", identity.endpoint()},
          {"name", name.empty() ? Json() : Json(name)},
          {"incarnation", identity.router()},
          {"admin_endpoint", identity.admin_endpoint()},
          {"host", identity.host()},
          {"pid", identity.pid()},
          {"version", identity.version()},
          {"protocol", ProtocolJson(identity.protocol())},
          {"state", StateName(router)},
          {"running", load.running()},
          {"waiting", load.queued()},
          {"uptime_s", Seconds(load.uptime_us())},
          {"since_report_s", Seconds(router.since_report_us())}};
}

Json GoneJson(const v1::GoneStatus& gone) {
  const bool router = gone.instance() == 0;
  return {{"instance", router ? Json() : Json(gone.instance())},
          {"role", router ? "router" : RoleName(gone.role())},
          {"model", router ? Json() : Json(gone.model())},
          {"endpoint", gone.endpoint()},
          {"gone_s", Seconds(gone.gone_us())},
          {"why", gone.why()},
          {"lost", !gone.left()},
          {"replaced", gone.replaced()}};
}

Json RefusedJson(const v1::RefusedPeer& peer) {
  return {{"what", peer.what()},
          {"model", peer.model().empty() ? Json() : Json(peer.model())},
          {"endpoint", peer.endpoint()},
          {"version", peer.version()},
          {"since_s", Seconds(peer.since_us())},
          {"times", peer.times()},
          {"why", peer.why()}};
}

}  // namespace

ProcessNames::ProcessNames(const LocalCluster& cluster, std::string host) : host_(std::move(host)) {
  for (const LocalProcess& process : cluster.processes) by_pid_[process.pid] = process.name;
}

ProcessNames ProcessNames::Of(const std::string& orchestrator, const Environment& environment) {
  const auto cluster = FindLocalCluster(environment);
  if (!cluster.ok() || cluster->orchestrator != orchestrator) return {};
  char host[256] = {};
  return gethostname(host, sizeof host - 1) == 0 ? ProcessNames(*cluster, host) : ProcessNames();
}

std::string ProcessNames::Find(const std::string& host, int64_t pid) const {
  const auto it = by_pid_.find(pid);
  return it == by_pid_.end() || host != host_ ? "" : it->second;
}

std::string StatusTable(const v1::StatusResponse& status, const ProcessNames& names,
                        const TableStyle& style) {
  return absl::StrCat("skein ", status.version(), ", up ", Ago(status.uptime_us()), ": ",
                      HealthText(status, style.width), RequestsText(status, style), "\n",
                      RouterTable(status, names, style.width), "\n",
                      InstanceTable(status, names, style), GoneTable(status, style.width),
                      RefusedTable(status, style.width));
}

Json StatusJson(const v1::StatusResponse& status, const ProcessNames& names) {
  const Health health = HealthOf(status);
  Json json;
  json["health"] = NameOf(health.level);
  json["reasons"] = health.reasons;
  json["version"] = status.version();
  json["uptime_s"] = Seconds(status.uptime_us());
  json["epoch"] = status.epoch();
  json["invariants"] = status.invariants();
  json["requests"] = {{"assigning", status.assigning()},
                      {"assigned", status.assigned()},
                      {"waiting_for_decode", status.waiting_for_decode()},
                      {"reserving", status.reserving()},
                      {"sharing", status.sharing()},
                      {"placed", status.placed()},
                      {"parked", status.parked()},
                      {"submitted", status.submitted()},
                      {"refused", status.refused()},
                      {"failed", status.failed()}};
  json["instances_lost"] = status.instances_lost();
  json["models"] = Json::array();
  for (const v1::ModelHealth& model : status.models()) {
    json["models"].push_back({{"model", model.model()},
                              {"prefill_serving", model.prefill_serving()},
                              {"decode_serving", model.decode_serving()}});
  }
  json["routers"] = Json::array();
  for (const v1::RouterStatus& one : status.routers()) {
    json["routers"].push_back(RouterJson(one, names));
  }
  json["instances"] = Json::array();
  for (const v1::InstanceStatus& one : status.instances()) {
    json["instances"].push_back(InstanceJson(one, names));
  }
  json["gone"] = Json::array();
  for (const v1::GoneStatus& one : status.gone()) json["gone"].push_back(GoneJson(one));
  json["refused"] = Json::array();
  for (const v1::RefusedPeer& one : status.refused_peers()) {
    json["refused"].push_back(RefusedJson(one));
  }
  return json;
}

std::string StatusLine(const v1::StatusResponse& status, const std::string& time) {
  struct Sum {
    int serving = 0;
    int all = 0;
    uint64_t running = 0;
    uint64_t waiting = 0;
    double tokens_per_second = 0;
    double kv_share_max = 0;
  };
  Sum prefill;
  Sum decode;
  for (const v1::InstanceStatus& one : status.instances()) {
    Sum& sum = one.registration().role() == v1::ROLE_PREFILL ? prefill : decode;
    ++sum.all;
    sum.serving += one.serving() ? 1 : 0;
    sum.running += one.load().running();
    sum.waiting += one.load().waiting();
    sum.tokens_per_second += TokensPerSecond(one);
    sum.kv_share_max = std::max(sum.kv_share_max, KvShare(one.load().blocks()));
  }
  const auto routers = std::count_if(status.routers().begin(), status.routers().end(),
                                     [](const v1::RouterStatus& r) { return !r.draining(); });
  const Health health = HealthOf(status);
  std::string line = absl::StrFormat(
      "%s %s: routers %d/%d, prefill %d/%d, decode %d/%d serving; prefill %d running %d waiting "
      "%.0f tok/s; decode %d running %d waiting %.0f tok/s, KV %.1f %% at most; %d submitted, %d "
      "failed",
      time, NameOf(health.level), routers, status.routers_size(), prefill.serving, prefill.all,
      decode.serving, decode.all, prefill.running, prefill.waiting, prefill.tokens_per_second,
      decode.running, decode.waiting, decode.tokens_per_second, 100 * decode.kv_share_max,
      status.submitted(), status.failed());
  if (!health.reasons.empty()) absl::StrAppend(&line, "; ", health.reasons.front());
  return line + "\n";
}

}  // namespace skein::services
