#include "statistics.h"

#include <algorithm>
#include <cmath>

namespace bench {

namespace {

double interpolated(const std::vector<double>& sorted, double fraction) {
  const double at = fraction * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(at);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (sorted[above] - sorted[below]) * (at - static_cast<double>(below));
}

bool reaches(const Bar& bar, double ratio, double slack) noexcept {
  return bar.kind == Bar::Kind::at_least ? ratio >= bar.value / slack : ratio <= bar.value * slack;
}

}  // namespace

Summary summarize(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  return {.min = values.front(),
          .q1 = interpolated(values, 0.25),
          .median = interpolated(values, 0.5),
          .q3 = interpolated(values, 0.75),
          .max = values.back()};
}

double percentile(std::vector<double> values, double percent) {
  if (values.empty()) return 0;
  const auto rank = static_cast<std::size_t>(std::ceil(percent / 100 * static_cast<double>(values.size())));
  const auto nth = values.begin() + static_cast<std::ptrdiff_t>(std::clamp<std::size_t>(rank, 1, values.size()) - 1);
  std::nth_element(values.begin(), nth, values.end());
  return *nth;
}

std::vector<double> ratios(std::span<const double> ours, std::span<const double> peer) {
  std::vector<double> result;
  for (std::size_t i = 0; i < std::min(ours.size(), peer.size()); ++i) {
    if (peer[i] != 0) result.push_back(ours[i] / peer[i]);
  }
  return result;
}

Verdict judge(const std::optional<Bar>& bar, double ratio, Enforce enforce) noexcept {
  if (!bar) return Verdict::shown;
  if (reaches(*bar, ratio, 1)) return Verdict::met;
  if (enforce == Enforce::off) return Verdict::below;
  if (enforce == Enforce::half && reaches(*bar, ratio, 2)) return Verdict::below;
  return Verdict::missed;
}

std::string_view to_string(Enforce enforce) noexcept {
  switch (enforce) {
    case Enforce::full:
      return "full";
    case Enforce::half:
      return "half";
    case Enforce::off:
      return "off";
  }
  return "?";
}

std::string_view to_string(Verdict verdict) noexcept {
  switch (verdict) {
    case Verdict::met:
      return "met";
    case Verdict::below:
      return "below";
    case Verdict::missed:
      return "MISSED";
    case Verdict::shown:
      return "shown";
  }
  return "?";
}

}  // namespace bench
