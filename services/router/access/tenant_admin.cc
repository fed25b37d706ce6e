#include "services/router/access/tenant_admin.h"

#include <set>
#include <utility>

#include "nlohmann/json.hpp"
#include "services/http/error.h"
#include "services/log/log.h"
#include "services/log/log_limit.h"

namespace skein::services {
namespace {

using Json = nlohmann::ordered_json;
using scheduler::tenants::TenantState;

constexpr char kPath[] = "/admin/tenants";

http::Response NotReady() {
  return http::ErrorResponse(503, "The router is starting or stopping.", {}, "not_ready");
}

http::Response JsonResponse(std::string body) {
  http::Response response;
  response.body = std::move(body);
  return response;
}

Json LimitOrNull(int64_t limit, int64_t value) { return limit == 0 ? Json() : Json(value); }

Json TotalsOf(const TenantState& state) {
  Json ended = Json::object(), over = Json::object();
  for (const auto outcome : scheduler::tenants::kOutcomes) {
    const auto it = state.totals.ended.find(outcome);
    ended[std::string(ToString(outcome))] = it == state.totals.ended.end() ? 0 : it->second;
  }
  for (const auto limit : scheduler::tenants::kLimits) {
    const auto it = state.totals.over_limits.find(limit);
    over[std::string(ToString(limit))] = it == state.totals.over_limits.end() ? 0 : it->second;
  }
  return {{"requests", std::move(ended)},
          {"over_limits", std::move(over)},
          {"prompt_tokens", state.totals.tokens.prompt},
          {"output_tokens", state.totals.tokens.output}};
}

}  // namespace

std::string TenantJson(const std::string& name, const Tenant* tenant,
                       const std::vector<std::string>& key_ids, const TenantState& state) {
  const Tenant none;
  const Tenant& of_file = tenant == nullptr ? none : *tenant;
  const auto goal = [](int64_t us) { return us == 0 ? Json() : Json(us / 1000); };
  const Json json = {
      {"name", name},
      {"keys", key_ids},
      {"weight", of_file.weight},
      {"priority", of_file.priority.has_value() ? Json(*of_file.priority) : Json()},
      {"models", of_file.models.empty() ? Json() : Json(of_file.models)},
      {"ttft_ms", goal(of_file.ttft_goal_us)},
      {"tpot_ms", goal(of_file.tpot_goal_us)},
      {"limits",
       {{"requests_per_minute",
         LimitOrNull(state.limits.requests_per_minute, state.limits.requests_per_minute)},
        {"tokens_per_minute",
         LimitOrNull(state.limits.tokens_per_minute, state.limits.tokens_per_minute)},
        {"concurrency", LimitOrNull(state.limits.concurrency, state.limits.concurrency)}}},
      {"left",
       {{"requests_per_minute", LimitOrNull(state.limits.requests_per_minute, state.requests_left)},
        {"tokens_per_minute", LimitOrNull(state.limits.tokens_per_minute, state.tokens_left)}}},
      {"running", state.running},
      {"lines", state.lines},
      {"reserved_tokens", state.reserved_tokens},
      {"used", TotalsOf(state)}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

absl::StatusOr<std::unique_ptr<TenantAdmin>> TenantAdmin::Open(const std::string& key_file,
                                                               Hooks hooks) {
  std::unique_ptr<TenantAdmin> admin(new TenantAdmin(key_file, std::move(hooks)));
  if (absl::Status read = admin->ReadKeys(); !read.ok()) return read;
  return admin;
}

void TenantAdmin::AddRoutes(http::Routes* routes) {
  const auto add = [this, routes](const char* method, const char* path, auto page) {
    routes->Add(method, path,
                [this, page](const http::Request& request,
                             const std::shared_ptr<http::Responder>& responder) {
                  auto refusal = Refusal(request);
                  responder->Send(refusal.has_value() ? *std::move(refusal) : page(request));
                });
  };
  add("GET", kPath, [this](const http::Request&) { return ListTenants(); });
  add("GET", "/admin/tenants/*", [this](const http::Request& r) { return ShowTenant(r); });
  add("POST", "/admin/reload", [this](const http::Request& r) { return Reload(r); });
}

std::optional<http::Response> TenantAdmin::Refusal(const http::Request& request) {
  const Access::Found found = access_.Admit(request.Get("Authorization"), request.remote);
  if (found.admitted) return std::nullopt;
  http::Response refusal;
  if (found.held_us > 0) {
    refusal = http::ErrorResponse(
        429, "This address has sent too many keys that are not valid. Retry later.", {},
        "too_many_wrong_keys");
    refusal.headers.push_back({"Retry-After", std::to_string(found.held_us / 1'000'000 + 1)});
  } else {
    refusal =
        http::ErrorResponse(401, "Authorization: must be 'Bearer ' and a key of --admin-key-file.",
                            {}, "wrong_admin_key");
    refusal.headers.push_back({"WWW-Authenticate", "Bearer"});
  }
  LogLimited("admin, no key", Level::kWarning, "refused",
             {{"path", std::string_view(request.path).substr(0, 256)},
              {"remote", request.remote},
              {"request_id", request.id},
              {"status", refusal.status}});
  return refusal;
}

http::Response TenantAdmin::ListTenants() {
  std::string body;
  int64_t routers = 0;
  const bool ready = hooks_.look([&body, &routers](const Access& access, Accounts* accounts) {
    routers = accounts->routers();
    const Tenants tenants = access.tenants();
    auto keys = access.KeyIds();
    const auto states = accounts->LookAll();
    std::set<std::string> names;
    for (const auto& [name, tenant] : tenants) names.insert(name);
    for (const auto& [name, ids] : keys) names.insert(name);
    for (const auto& [name, state] : states) names.insert(name);
    for (const std::string& name : names) {
      const auto tenant = tenants.find(name);
      body += body.empty() ? "" : ",";
      body += TenantJson(name, tenant == tenants.end() ? nullptr : &tenant->second, keys[name],
                         accounts->Look(name));
    }
  });
  return ready ? JsonResponse("{\"routers\":" + std::to_string(routers) + ",\"tenants\":[" + body +
                              "]}\n")
               : NotReady();
}

http::Response TenantAdmin::ShowTenant(const http::Request& request) {
  const std::string name = request.path.substr(sizeof(kPath));
  std::string body;
  const bool ready = hooks_.look([&](const Access& access, Accounts* accounts) {
    const Tenants tenants = access.tenants();
    auto keys = access.KeyIds();
    const auto tenant = tenants.find(name);
    if (tenant == tenants.end() && !keys.contains(name)) return;
    body = TenantJson(name, tenant == tenants.end() ? nullptr : &tenant->second, keys[name],
                      accounts->Look(name)) +
           "\n";
  });
  if (!ready) return NotReady();
  if (body.empty()) {
    return http::ErrorResponse(404, "There is no tenant of this name.", {}, "no_such_tenant");
  }
  return JsonResponse(std::move(body));
}

http::Response TenantAdmin::Reload(const http::Request& request) {
  const auto read = hooks_.reload();
  if (!read.has_value()) return NotReady();
  LogInfo("reload ordered", {{"remote", request.remote}});
  if (read->ok()) return JsonResponse("{\"reloaded\":true}\n");
  return http::ErrorResponse(409, "Nothing has changed: " + std::string(read->message()), {},
                             "not_reloaded");
}

}  // namespace skein::services
