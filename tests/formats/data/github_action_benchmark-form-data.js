window.BENCHMARK_DATA = {
  "lastUpdate": 1574927128603,
  "repoUrl": "https://github.com/user/repo",
  "entries": {
    "Rust": [
      {
        "commit": {
          "id": "aaa",
          "message": "one"
        },
        "date": 1574927127603,
        "tool": "cargo",
        "benches": [
          {
            "name": "fib",
            "range": "\u00b1 20",
            "unit": "ns/iter",
            "value": 100
          }
        ]
      },
      {
        "commit": {
          "id": "bbb",
          "message": "two"
        },
        "date": 1574927128603,
        "tool": "cargo",
        "benches": [
          {
            "name": "fib",
            "range": "\u00b1 20",
            "unit": "ns/iter",
            "value": 110
          }
        ]
      }
    ],
    "Throughput": [
      {
        "commit": {
          "id": "bbb",
          "message": "two"
        },
        "date": 1574927128603,
        "tool": "customBiggerIsBetter",
        "benches": [
          {
            "name": "tokens",
            "unit": "tokens/s",
            "value": 812.5
          }
        ]
      }
    ]
  }
};
