#include "services/http/admin.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "services/http/error.h"

namespace skein::services::http {
namespace {

Response Text(std::string body) {
  Response response;
  response.content_type = "text/plain; charset=utf-8";
  response.body = std::move(body);
  return response;
}

Response Readiness(const std::function<absl::Status()>& ready) {
  const absl::Status status = ready ? ready() : absl::OkStatus();
  if (status.ok()) return Text("ok\n");
  const std::string message(status.message().data(), status.message().size());
  Response response = ErrorResponse(503, "Not ready: " + message, {}, "not_ready");
  response.headers.push_back({"Retry-After", "1"});
  return response;
}

Response Liveness(const std::function<absl::Status()>& live) {
  const absl::Status status = live ? live() : absl::OkStatus();
  if (status.ok()) return Text("ok\n");
  return ErrorResponse(503, absl::StrCat("Not alive: ", status.message()), {}, "not_alive");
}

}  // namespace

void AddAdminPages(const AdminPages& pages, Routes* routes) {
  routes->AddPage("/livez", [live = pages.live](const Request&) { return Liveness(live); });
  for (const char* path : {"/readyz", "/health", "/ping"}) {
    routes->AddPage(path, [ready = pages.ready](const Request&) { return Readiness(ready); });
  }
  routes->Add("POST", "/ping",
              [ready = pages.ready](Request, std::shared_ptr<Responder> responder) {
                responder->Send(Readiness(ready));
              });
  const std::string version = "{\"version\":" + JsonString(pages.version) +
                              ",\"service\":" + JsonString(pages.service) + "}\n";
  AddJsonPage(
      "/version", [version] { return version; }, routes);
  if (pages.metrics_page) routes->AddPage("/metrics", pages.metrics_page);
  if (!pages.metrics || pages.metrics_page) return;
  routes->AddPage("/metrics", [metrics = pages.metrics](const Request&) {
    Response response = Text(metrics());
    response.content_type = "text/plain; version=0.0.4; charset=utf-8";
    return response;
  });
}

void AddJsonPage(std::string path, std::function<std::string()> json, Routes* routes) {
  routes->AddPage(std::move(path), [json = std::move(json)](const Request&) {
    Response response;
    response.body = json();
    return response;
  });
}

}  // namespace skein::services::http
