#include "services/tracing/trace_page.h"

#include <utility>
#include <variant>

#include "nlohmann/json.hpp"
#include "services/http/message.h"
#include "services/tracing/context.h"

namespace skein::services {
namespace {

using Json = nlohmann::ordered_json;

std::string Dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Json AttributesJson(const std::vector<SpanAttribute>& attributes) {
  Json json = Json::object();
  for (const SpanAttribute& attribute : attributes) {
    std::visit([&](const auto& value) { json[attribute.name] = value; }, attribute.value);
  }
  return json;
}

Json SpanJson(const Span& span) {
  Json events = Json::array();
  for (const SpanEvent& event : span.events) {
    events.push_back({{"unix_ns", event.unix_ns},
                      {"name", event.name},
                      {"attributes", AttributesJson(event.attributes)}});
  }
  return {{"trace", Hex(span.context.trace)},
          {"span", HexOfSpan(span.context.span)},
          {"parent", span.parent == 0 ? "" : HexOfSpan(span.parent)},
          {"name", span.name},
          {"start_unix_ns", span.start_unix_ns},
          {"end_unix_ns", span.end_unix_ns},
          {"attributes", AttributesJson(span.attributes)},
          {"events", std::move(events)},
          {"failed", span.failed},
          {"failure", span.failure}};
}

std::string IdOf(const std::string& query) {
  std::vector<std::pair<std::string, std::string>> fields;
  if (!http::ParseQuery(query, &fields)) return "";
  for (const auto& [name, value] : fields) {
    if (name == "id") return value;
  }
  return "";
}

}  // namespace

std::string SpansJson(const std::vector<SpanPtr>& spans) {
  Json list = Json::array();
  for (const SpanPtr& span : spans) list.push_back(SpanJson(*span));
  return Dump({{"tracing", true}, {"spans", std::move(list)}});
}

void AddTracePage(std::function<const RecentSpans*()> recent, http::Routes* routes) {
  routes->AddPage("/debug/trace", [recent = std::move(recent)](const http::Request& request) {
    http::Response response;
    const std::string id = IdOf(request.query);
    const RecentSpans* const spans = recent();
    if (id.empty()) {
      response.status = 400;
      response.body = Dump({{"error", "id: required, as in /debug/trace?id=REQUEST"}});
    } else if (spans == nullptr) {
      response.body = Dump({{"tracing", false}, {"spans", Json::array()}});
    } else {
      response.body = SpansJson(spans->Find(id));
    }
    return response;
  });
}

}  // namespace skein::services
