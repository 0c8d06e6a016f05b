#include "engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/diagnostic.h"
#include "base/hash.h"
#include "base/parse_number.h"
#include "base/philox.h"

namespace meshtrain {
namespace {

struct BadSampler {
  std::string why;
};

int64_t count_of(std::string_view value, int64_t otherwise) {
  if (value.data() == nullptr)
    return otherwise;
  const auto count = parse_number<int64_t>(value);
  if (!count || *count < 1)
    throw BadSampler{fmt::format("`{}` is no whole number from 1 on", value)};
  return *count;
}

double share_of(std::string_view value, double otherwise) {
  if (value.data() == nullptr)
    return otherwise;
  const auto share = parse_number<double>(value);
  if (!share || !(*share > 0 && *share <= 1))
    throw BadSampler{fmt::format("`{}` is no number above 0, at most 1", value)};
  return *share;
}

double alpha_of(std::string_view value, double otherwise) {
  if (value.data() == nullptr)
    return otherwise;
  const auto alpha = parse_number<double>(value);
  if (!alpha || !(*alpha >= 0 && *alpha <= 1))
    throw BadSampler{fmt::format("`{}` is no number from 0 to 1", value)};
  return *alpha;
}

// What stands before and behind the comma; no data where nothing does.
std::pair<std::string_view, std::string_view> parts_of(std::string_view value) {
  const size_t comma = value.find(',');
  const bool has_two = value.data() != nullptr && comma != std::string_view::npos;
  return {value.substr(0, comma), has_two ? value.substr(comma + 1) : std::string_view()};
}

// The logarithms of probabilities are these minus the result.
double log_sum(std::span<const float> scores, double temperature) {
  double most = -std::numeric_limits<double>::infinity(), sum = 0;
  for (const float score : scores)
    most = std::max(most, score / temperature);
  for (const float score : scores)
    sum += std::exp(score / temperature - most);
  return most + std::log(sum);
}

// The ids from the largest score on, lower ids first among equals; the first `count` in order.
std::vector<int32_t> largest(std::span<const float> scores, size_t count) {
  std::vector<int32_t> ids(scores.size());
  std::iota(ids.begin(), ids.end(), 0);
  count = std::min(count, ids.size());
  const auto comes_first = [&](int32_t a, int32_t b) {
    const float x = scores[static_cast<size_t>(a)], y = scores[static_cast<size_t>(b)];
    return x > y || (x == y && a < b);
  };
  std::partial_sort(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(count), ids.end(),
                    comes_first);
  ids.resize(count);
  return ids;
}

// The ids that the sampler keeps, in the order of ids.
std::vector<int32_t> kept_ids(const Sampler& sampler, std::span<const float> scores) {
  if (sampler.kind == Sampler::Kind::kRandom) {
    std::vector<int32_t> all(scores.size());
    std::iota(all.begin(), all.end(), 0);
    return all;
  }
  std::vector<int32_t> ids;
  if (sampler.kind == Sampler::Kind::kTopK) {
    ids = largest(scores, static_cast<size_t>(sampler.count));
  } else {
    ids = largest(scores, static_cast<size_t>(sampler.count));
    const double total = log_sum(scores, sampler.temperature);
    double before = 0;
    size_t kept = 0;
    for (; kept < ids.size() && before <= sampler.share; ++kept)
      before += std::exp(scores[static_cast<size_t>(ids[kept])] / sampler.temperature - total);
    ids.resize(kept);
  }
  std::sort(ids.begin(), ids.end());
  return ids;
}

Sampler read_sampler(std::string_view text) {
  const size_t at = text.find('=');
  const std::string_view name = text.substr(0, at);
  std::string_view value;  // no data: none is given
  if (at != std::string_view::npos)
    value = text.substr(at + 1);
  Sampler sampler;
  if (name == "greedy" || name == "random") {
    sampler.kind = name == "greedy" ? Sampler::Kind::kGreedy : Sampler::Kind::kRandom;
    if (value.data() != nullptr)
      throw BadSampler{fmt::format("`{}` takes no number", name)};
  } else if (name == "top_k") {
    sampler.count = count_of(value, 5);
  } else if (name == "top_p") {
    const auto [share, count] = parts_of(value);
    sampler.kind = Sampler::Kind::kTopP;
    sampler.share = share_of(share, 0.1);
    sampler.count = count_of(count, std::numeric_limits<int64_t>::max());
  } else if (name == "beam") {
    sampler.kind = Sampler::Kind::kBeam;
    sampler.count = count_of(value, 5);
  } else if (name == "contrastive") {
    const auto [count, alpha] = parts_of(value);
    sampler.kind = Sampler::Kind::kContrastive;
    sampler.count = count_of(count, 5);
    sampler.alpha = alpha_of(alpha, 0.6);
  } else {
    throw BadSampler{"there is no such sampler"};
  }
  return sampler;
}

}  // namespace

Sampler parse_sampler(std::string_view text, std::string_view name, const SourceLoc& loc) {
  try {
    return read_sampler(text);
  } catch (const BadSampler& bad) {
    throw ConfigError(loc ? "E112" : "E140", loc, fmt::format("{} `{}`: {}", name, text, bad.why))
        .help("greedy, random, top_k=40, top_p=0.9 or top_p=0.9,40, beam=4 or contrastive=4,0.6");
  }
}

int32_t sample_id(const Sampler& sampler, std::span<const float> scores, double uniform) {
  if (sampler.kind == Sampler::Kind::kGreedy)
    return largest(scores, 1)[0];
  const std::vector<int32_t> ids = kept_ids(sampler, scores);
  std::vector<float> kept;
  for (const int32_t id : ids)
    kept.push_back(scores[static_cast<size_t>(id)]);
  const double total = log_sum(kept, sampler.temperature);
  double sum = 0;
  int32_t last = ids[0];
  for (size_t i = 0; i < ids.size(); ++i) {
    const double share = std::exp(kept[i] / sampler.temperature - total);
    sum += share;
    last = share > 0 ? ids[i] : last;  // rounding may leave the sum below 1
    if (sum > uniform)
      return last;
  }
  return last;
}

double sampling_number(int64_t seed, int64_t sample, int64_t position) {
  static const auto kStream = static_cast<uint32_t>(hash_text("generate"));
  const uint32_t bits = philox_bits(static_cast<uint64_t>(seed), kStream,
                                    static_cast<uint32_t>(position), static_cast<uint64_t>(sample));
  return (bits + 0.5) / 4294967296.0;
}

std::vector<BeamStep> beam_step(const Sampler& sampler, std::span<const Beam> beams,
                                std::span<const float> scores, bool is_first) {
  const size_t ids = scores.size() / beams.size();
  std::vector<BeamStep> steps;
  for (size_t row = 0; row < (is_first ? 1 : beams.size()); ++row) {
    const Beam& beam = beams[row];
    if (beam.has_ended) {
      steps.push_back({static_cast<int>(row), -1, beam});
      continue;
    }
    const std::span<const float> own = scores.subspan(row * ids, ids);
    const double total = log_sum(own, sampler.temperature);
    for (const int32_t id : largest(own, beams.size())) {
      const double score = own[static_cast<size_t>(id)] / sampler.temperature - total;
      steps.push_back({static_cast<int>(row), id, {beam.score + score, false}});
    }
  }
  std::stable_sort(steps.begin(), steps.end(), [](const BeamStep& a, const BeamStep& b) {
    return a.beam.score > b.beam.score;
  });
  while (steps.size() < beams.size())  // fewer ids than beams
    steps.push_back(
        {steps.back().parent, steps.back().id, {-std::numeric_limits<double>::infinity(), false}});
  steps.resize(beams.size());
  return steps;
}

std::vector<Candidate> contrastive_candidates(const Sampler& sampler,
                                              std::span<const float> scores) {
  const double total = log_sum(scores, sampler.temperature);
  std::vector<Candidate> candidates;
  for (const int32_t id : largest(scores, static_cast<size_t>(sampler.count))) {
    const double score = scores[static_cast<size_t>(id)] / sampler.temperature - total;
    candidates.push_back({id, std::exp(score)});
  }
  candidates.resize(static_cast<size_t>(sampler.count), candidates.back());
  return candidates;
}

size_t contrastive_choice(const Sampler& sampler, std::span<const Candidate> candidates,
                          std::span<const double> similarities) {
  size_t best = 0;
  double most = -std::numeric_limits<double>::infinity();
  for (size_t row = 0; row < candidates.size(); ++row) {
    const double score =
        (1 - sampler.alpha) * candidates[row].probability - sampler.alpha * similarities[row];
    if (score > most) {
      most = score;
      best = row;
    }
  }
  return best;
}

}  // namespace meshtrain
