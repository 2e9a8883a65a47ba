//! The code of docs/rpc-tutorial.md, as it stands there.
#![allow(missing_docs)]

use corewire_rpc::{Channel, Code, RpcServer, Status, Stream, Streaming};
use serde::{Deserialize, Serialize};

/// A message: any serde type. `#[corewire_rpc::message(json)]` writes it as JSON.
#[corewire_rpc::message]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Reading {
    pub sensor: String,
    pub celsius: f64,
}

#[corewire_rpc::message]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    pub readings: u64,
    pub mean: f64,
}

#[corewire_rpc::service]
pub trait Climate {
    /// One request, one response.
    async fn fahrenheit(&self, reading: Reading) -> Result<Reading, Status>;
    /// Any number of requests, one response.
    async fn summary(&self, readings: Streaming<Reading>) -> Result<Summary, Status>;
    /// One request, any number of responses.
    async fn forecast(&self, now: Reading) -> Result<impl Stream<Item = Reading>, Status>;
}

struct Station;

impl Climate for Station {
    async fn fahrenheit(&self, reading: Reading) -> Result<Reading, Status> {
        if reading.celsius < -273.15 {
            return Err(Status::new(Code::INVALID_REQUEST, "colder than cold"));
        }
        Ok(Reading { celsius: reading.celsius * 9.0 / 5.0 + 32.0, ..reading })
    }

    async fn summary(&self, mut readings: Streaming<Reading>) -> Result<Summary, Status> {
        let (mut count, mut sum) = (0, 0.0);
        while let Some(reading) = readings.next().await {
            sum += reading?.celsius;
            count += 1;
        }
        Ok(Summary { readings: count, mean: sum / count.max(1) as f64 })
    }

    async fn forecast(&self, now: Reading) -> Result<impl Stream<Item = Reading>, Status> {
        Ok(futures_lite::stream::iter(
            (1..=3).map(move |day| Reading { celsius: now.celsius + f64::from(day), ..now.clone() }),
        ))
    }
}

#[allow(dead_code)]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    RpcServer::bind("tcp://0.0.0.0:7801").service(ClimateServer::new(Station)).run()?;
    Ok(())
}

#[allow(dead_code)]
async fn use_it() -> Result<(), Box<dyn std::error::Error>> {
    let climate = ClimateClient::new(Channel::to("tcp://127.0.0.1:7801").build()?);

    let warm = Reading { sensor: "roof".into(), celsius: 20.0 };
    let reading = climate.fahrenheit(warm.clone()).timeout(std::time::Duration::from_secs(1)).await?;
    println!("{reading:?}");

    let (mut sink, summary) = climate.summary().await?;
    for celsius in [18.0, 22.0] {
        sink.send(Reading { celsius, ..warm.clone() }).await?; // waits while the server does not keep up
    }
    sink.finish().await?;
    println!("{:?}", summary.await?);

    let mut days = climate.forecast(warm).await?;
    while let Some(day) = days.next().await {
        println!("{:?}", day?);
    }
    Ok(())
}

#[test]
fn two_readings_have_a_mean() {
    let server =
        RpcServer::bind("tcp://127.0.0.1:0").service(ClimateServer::new(Station)).workers(1).start().unwrap();
    let climate = ClimateClient::new(Channel::to(server.uri()).build().unwrap());
    let summary = corewire::block_on(async {
        let (mut sink, summary) = climate.summary().await?;
        for celsius in [18.0, 22.0] {
            sink.send(Reading { sensor: "roof".into(), celsius }).await?;
        }
        sink.finish().await?;
        summary.await
    });
    assert_eq!(summary.unwrap(), Summary { readings: 2, mean: 20.0 });
}
