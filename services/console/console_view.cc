#include "services/console/console_view.h"

#include <cctype>
#include <cmath>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "scheduler/vocabulary/request_id.h"
#include "services/orchestrator_link/state_names.h"

namespace skein::services {
namespace {

using Json = nlohmann::json;

// Three digits are what a person reads, and what changes less is sent less often.
double Rounded(double value) {
  if (value == 0 || !std::isfinite(value)) return 0;
  const double scale = std::pow(10.0, 2 - std::floor(std::log10(std::abs(value))));
  return std::round(value * scale) / scale;
}

int64_t MomentMs(int64_t now_ms, double ago_s) {
  return now_ms - static_cast<int64_t>(std::llround(ago_s * 1e3));
}

double Us(uint64_t us) { return static_cast<double>(us) * 1e-6; }

template <typename Repeated>
Json ListOf(const Repeated& values) {
  Json list = Json::array();
  for (const auto& value : values) list.push_back(value);
  return list;
}

// Ids of instances, routers and epochs have the generation of their orchestrator in their upper
// bits, or are random: numbers of a page, of 53 bits, would lose their last digits.
std::string IdText(uint64_t id) { return absl::StrCat(id); }

template <typename Repeated>
Json IdsOf(const Repeated& ids) {
  Json list = Json::array();
  for (const uint64_t id : ids) list.push_back(IdText(id));
  return list;
}

// Members that are empty say nothing, so they are left out.
void Tell(const char* name, const std::string& text, Json* object) {
  if (!text.empty()) (*object)[name] = text;
}

Json InstanceView(size_t cell, const v1::InstanceStatus& one, int64_t now_ms) {
  const v1::RegisterRequest& told = one.registration();
  const v1::BlockCounts& blocks = one.load().blocks();
  Json json = {{"cell", cell},
               {"id", IdText(one.instance())},
               {"role", RoleName(told.role())},
               {"model", told.model()},
               {"node", told.node().empty() ? told.host() : told.node()},
               {"device", told.device()},
               {"endpoint", told.endpoint()},
               {"version", told.version()},
               {"pid", told.pid()},
               {"state", StateName(one)},
               {"joined_at_ms", MomentMs(now_ms, Us(one.uptime_us()))},
               {"blocks", blocks.total()},
               {"held", blocks.held()},
               {"cached", blocks.cached()},
               {"running", one.load().running()},
               {"waiting", one.load().waiting()},
               {"queued_tokens", one.load().queued_tokens()},
               {"tokens_per_s", Rounded(one.load().tokens_per_second())}};
  if (told.role() == v1::ROLE_PREFILL) json["queue_s"] = Rounded(one.queue_s());
  if (told.role() == v1::ROLE_DECODE) json["freeness"] = Rounded(one.freeness());
  if (one.slowness() > 0) json["slowness"] = Rounded(one.slowness());
  Tell("pace", one.pace(), &json);
  return json;
}

Json FormationView(const v1::GroupStatus::Formation& one, int64_t now_ms) {
  Json json = {{"members", IdsOf(one.members())},
               {"name", one.name()},
               {"stage", one.stage()},
               {"epoch", IdText(one.epoch())},
               {"pinned", one.pinned()},
               {"since_at_ms", MomentMs(now_ms, Us(one.for_us()))}};
  Tell("why", one.why(), &json);
  return json;
}

Json GroupView(size_t cell, const v1::GroupStatus& one, int64_t now_ms) {
  Json json = {{"cell", cell},
               {"name", one.name()},
               {"role", RoleName(one.role())},
               {"model", one.model()},
               {"node", one.node()},
               {"members", IdsOf(one.members())},
               {"formations", Json::array()},
               {"rejected", Json::array()},
               {"ready", one.ready()}};
  for (const auto& formation : one.formations()) {
    json["formations"].push_back(FormationView(formation, now_ms));
  }
  for (const auto& other : one.rejected()) {
    json["rejected"].push_back({{"formation", other.formation()}, {"why", other.why()}});
  }
  Tell("why", one.why(), &json);
  return json;
}

Json ChunkView(const v1::PlanExplanation::Chunk& one) {
  Json json = {{"tokens", one.tokens()},
               {"instances", IdsOf(one.instances())},
               {"tp", one.tp() == 0 ? 1 : one.tp()},
               {"estimated_start_s", one.estimated_start_s()},
               {"estimated_end_s", one.estimated_end_s()}};
  if (one.has_start_s()) json["start_s"] = one.start_s();
  if (one.has_end_s()) json["end_s"] = one.end_s();
  return json;
}

// What the drawings need of a plan.
Json PlanView(const v1::PlanExplanation& plan) {
  Json json = {{"epoch", IdText(plan.epoch())},
               {"decided_s", plan.decided_s()},
               {"how", plan.how()},
               {"estimated_ttft_s", plan.ttft_s()},
               {"chunks", Json::array()},
               {"group", plan.formation_instances()}};
  for (const auto& chunk : plan.chunks()) json["chunks"].push_back(ChunkView(chunk));
  if (plan.decode_instance() != 0) json["decode"] = IdText(plan.decode_instance());
  Tell("lost", plan.lost(), &json);
  return json;
}

Json SwitchView(const v1::PlanExplanation::Switch& one) {
  Json json = {{"start_s", one.start_s()}, {"from", one.from_instances()},
               {"to", one.to_instances()}, {"cause", one.cause()},
               {"why", one.why()},         {"meaning", one.meaning()},
               {"outcome", one.outcome()}, {"reason", one.reason()}};
  if (one.has_end_s()) json["end_s"] = one.end_s();
  return json;
}

Json WholePlanView(const v1::PlanExplanation& plan) {
  Json json = PlanView(plan);
  json["improvement_rate"] = plan.improvement_rate();
  for (const char* name : {"queue", "alternatives", "handoffs", "switches"}) {
    json[name] = Json::array();
  }
  for (const auto& one : plan.queue()) {
    json["queue"].push_back({{"instance", IdText(one.instance())}, {"queue_s", one.queue_s()}});
  }
  for (const auto& one : plan.alternatives()) {
    json["alternatives"].push_back({{"sp", one.sp()},
                                    {"start_s", one.start_s()},
                                    {"ttft_s", one.ttft_s()},
                                    {"why", one.why()}});
  }
  for (const auto& one : plan.handoffs()) {
    json["handoffs"].push_back({{"instance", IdText(one.prefill_instance())},
                                {"path", one.path().path()},
                                {"transport", one.path().transport()},
                                {"retries", one.path().retries()},
                                {"slower", one.slower()}});
  }
  for (const auto& one : plan.switches()) json["switches"].push_back(SwitchView(one));
  return json;
}

Json RequestView(const v1::RequestExplanation& one, int64_t now_ms) {
  Json json = {{"id", IdOf(one)},
               {"name", one.names().empty() ? IdOf(one) : one.names(0)},
               {"model", one.model()},
               {"prompt_tokens", one.prompt_tokens()},
               {"policy", one.policy()},
               {"state", one.state()},
               {"ended", one.has_ended_s()},
               {"submitted_at_ms", MomentMs(now_ms, one.age_s())}};
  if (one.has_output_tokens()) json["output_tokens"] = one.output_tokens();
  if (one.has_placed_s()) json["placed_s"] = one.placed_s();
  if (one.has_prefilled_s()) json["prefilled_s"] = one.prefilled_s();
  if (one.has_first_token_s()) json["first_token_s"] = one.first_token_s();
  if (one.has_ended_s()) json["ended_s"] = one.ended_s();
  json["degraded"] = Json::object();
  for (const auto& each : one.degraded()) json["degraded"][each.reason()] = each.times();
  return json;
}

Json JobView(const v1::JobStatus& one) {
  std::string state = v1::JobState_Name(one.state());
  constexpr std::string_view kPrefix = "JOB_STATE_";
  if (state.rfind(kPrefix, 0) == 0) state.erase(0, kPrefix.size());
  for (char& c : state) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return {{"id", one.id()},
          {"model", one.model()},
          {"state", state},
          {"lines", one.lines()},
          {"completed", one.completed()},
          {"failed", one.failed()},
          {"running", one.running()},
          {"created_at_ms", one.created_s() * 1000},
          {"expires_at_ms", one.expires_s() * 1000},
          {"tokens_per_s", Rounded(one.tokens_per_s())},
          {"left_s", Rounded(static_cast<double>(one.left_s()))},
          {"late", one.late()}};
}

Json CellView(const CellReport& cell, int64_t now_ms) {
  const v1::StatusResponse& status = cell.status;
  Json json = {{"name", cell.name},
               {"reached", cell.reached.ok()},
               {"version", status.version()},
               {"generation", status.generation()},
               {"submitted", status.submitted()},
               {"failed", status.failed()},
               {"refused", status.refused()},
               {"lost", status.instances_lost()},
               {"planning", status.assigning() + status.assigned()},
               {"waiting_for_decode", status.waiting_for_decode()},
               {"reserving", status.reserving()},
               {"placed", status.placed()},
               {"parked", status.parked()},
               {"invariants", status.invariants()},
               {"up_at_ms", MomentMs(now_ms, Us(status.uptime_us()))}};
  if (!cell.reached.ok()) json["problem"] = std::string(cell.reached.message());
  return json;
}

void AddPeers(size_t cell, const v1::StatusResponse& status, int64_t now_ms, Json* view) {
  for (const v1::RouterStatus& one : status.routers()) {
    (*view)["routers"][absl::StrCat(cell, ":", one.identity().router())] = {
        {"cell", cell},
        {"id", IdText(one.identity().router())},
        {"endpoint", one.identity().endpoint()},
        {"host", one.identity().host()},
        {"version", one.identity().version()},
        {"state", StateName(one)},
        {"queued", one.load().queued()},
        {"running", one.load().running()}};
  }
  for (const v1::GoneStatus& one : status.gone()) {
    const int64_t gone_ms = MomentMs(now_ms, Us(one.gone_us()));
    // A router has no number here.
    const std::string who =
        one.instance() == 0 ? one.endpoint() : absl::StrCat("instance ", one.instance());
    (*view)["gone"][absl::StrCat(cell, ":", who)] = {
        {"cell", cell},
        {"instance", one.instance() == 0 ? "" : IdText(one.instance())},
        {"role", one.instance() == 0 ? "router" : RoleName(one.role())},
        {"model", one.model()},
        {"endpoint", one.endpoint()},
        {"gone_at_ms", gone_ms},
        {"why", one.why()},
        {"left", one.left()},
        {"replaced", one.replaced()}};
  }
  for (const v1::RefusedPeer& one : status.refused_peers()) {
    (*view)["refused"][absl::StrCat(cell, ":", one.endpoint(), " ", one.why())] = {
        {"what", one.what()},       {"model", one.model()}, {"endpoint", one.endpoint()},
        {"version", one.version()}, {"why", one.why()},     {"times", one.times()}};
  }
}

}  // namespace

std::string IdOf(const v1::RequestExplanation& request) {
  return ToString(RequestId{request.id().router(), request.id().serial()});
}

Json ExplanationView(const v1::RequestExplanation& request, int64_t now_ms) {
  Json json = RequestView(request, now_ms);
  json["names"] = ListOf(request.names());
  json["plans"] = Json::array();
  for (const auto& plan : request.plans()) json["plans"].push_back(WholePlanView(plan));
  return json;
}

Json ViewOf(const std::vector<CellReport>& cells, int64_t now_ms) {
  Json view;
  for (const char* name :
       {"cells", "routers", "instances", "groups", "requests", "jobs", "gone", "refused"}) {
    view[name] = Json::object();
  }
  for (size_t i = 0; i < cells.size(); ++i) {
    const CellReport& cell = cells[i];
    const auto key = [i](const auto& id) { return absl::StrCat(i, ":", id); };
    view["cells"][absl::StrCat(i)] = CellView(cell, now_ms);
    AddPeers(i, cell.status, now_ms, &view);
    for (const v1::InstanceStatus& one : cell.status.instances()) {
      view["instances"][key(one.instance())] = InstanceView(i, one, now_ms);
    }
    for (const v1::GroupStatus& one : cell.groups.groups()) {
      view["groups"][key(one.name())] = GroupView(i, one, now_ms);
    }
    for (const v1::RequestExplanation& one : cell.requests.requests()) {
      Json& request = view["requests"][key(IdOf(one))] = RequestView(one, now_ms);
      request["cell"] = i;
      const auto known = cell.explained.find(IdOf(one));
      if (known == cell.explained.end() || known->second.plans().empty()) continue;
      request["plans"] = known->second.plans_size();
      request["plan"] = PlanView(*known->second.plans().rbegin());
    }
    for (const v1::JobStatus& one : cell.jobs.jobs()) view["jobs"][one.id()] = JobView(one);
  }
  return view;
}

}  // namespace skein::services
